"""A choice is a type: frozen values that say what to build, read from and written to JSON.

`position=Rotary(base=1e6)`, `feed_forward=SwiGLU(width=1536)`: what does not fit together cannot
be written down. Each choice builds its own module, so that no `forward` asks about a config.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qkv.errors import ConfigError

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class Choice(BaseModel):
    """A frozen value; a field that does not exist or does not fit is a ConfigError."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(one_line(error)) from None


def one_line(error: ValidationError) -> str:
    """What is wrong, with its place and what was given; a misspelt field before a missing one."""
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    title = "" if "[" in error.title else error.title  # pydantic's own name for a choice of types
    place = ".".join(filter(None, (title, *map(str, first["loc"]))))
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        return f"{place}: there is no such field"
    given = repr(first["input"])
    if first["type"] in ("value_error", "missing") or len(given) > 40:
        return f"{place}: {said}" if place else said
    return f"{place}={given}: {said}"
