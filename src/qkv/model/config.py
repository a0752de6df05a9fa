"""A choice is a type: frozen values that say what to build, read from and written to JSON.

`position=Rope(base=1e6)`, `feed_forward=SwiGLU(width=1536)`: what does not fit together cannot
be written down. Each choice builds its own module, so that no `forward` asks which was made.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from qkv.errors import ConfigError, unknown

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]

# Complaints that already tell what was given, or for which it does not matter.
SAID = ("value_error", "missing", "extra_forbidden", "union_tag_invalid", "json_invalid")


class Config(BaseModel):
    """A frozen value; a field that does not exist or does not fit is a ConfigError."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(validation_message(error, type(self).model_fields)) from None


def validation_message(error: ValidationError, fields: Iterable[str] = ()) -> str:
    """What is wrong, with its place and what was given; a misspelt field before a missing one."""
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    title = "" if error.title.startswith("_") else error.title
    place = ".".join(filter(None, (title, *map(str, first["loc"]))))
    given = repr(first["input"])
    shown = f"={given}" if first["type"] not in SAID and len(given) <= 40 and place else ""
    return f"{place}{shown}: {_sentence(first, fields)}".removeprefix(": ")


def _sentence(found: ErrorDetails, fields: Iterable[str]) -> str:
    if found["type"] == "extra_forbidden":
        name, known = str(found["loc"][-1]), [field for field in fields if field != "kind"]
        return unknown("field", name, known) if known else "there is no such field"
    if found["type"] == "model_attributes_type":
        return "a choice is needed here, as in LayerNorm() or Rope()"
    if found["type"] == "union_tag_invalid":
        kinds = [kind.strip(" '") for kind in found["ctx"]["expected_tags"].split(",")]
        return unknown("kind", found["ctx"]["tag"], kinds)
    return found["msg"].removeprefix("Value error, ")
