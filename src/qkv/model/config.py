"""Configs: frozen values that say what to build, read from and written to JSON.

`position=Rope(base=1e6)`, `feed_forward=SwiGLU(width=1536)`: combinations that do not fit together
raise a ConfigError. Each config builds its own module, so no `forward` asks which one was chosen.

Parts of which there are several variants (attention, feed-forward, norm, norm placement, position,
output, pooling) derive from `PartConfig`. A variant registers itself by its `kind` when its class
is defined, in this package, in another one or in a notebook:

    class TanhFeedForward(FeedForwardConfig):
        kind: Literal["tanh"] = "tanh"
        width: Size

        def build(self, model_width: int, dropout: float) -> nn.Module: ...
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from qkv.errors import ConfigError, unknown

Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]

# pydantic's error types whose text names the value already, or for which it does not matter.
_SELF_EXPLANATORY = (
    "value_error",
    "missing",
    "extra_forbidden",
    "union_tag_invalid",
    "json_invalid",
)
_MAX_VALUE_LENGTH = 40  # longer values are left out of error messages


class Config(BaseModel):
    """A frozen value; an unknown field or a value that does not fit raises a ConfigError."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(validation_message(error, type(self).model_fields)) from None


class PartConfig(Config):
    """A part of a model that comes in several variants, told apart by `kind`.

    A direct subclass is a family, as AttentionConfig; a field of that type takes any variant of
    it. A class below it with a field `kind` is a variant and is registered when it is defined.
    """

    if TYPE_CHECKING:
        kind: str  # a field of each variant

    _variants: ClassVar[dict[str, type[Self]]] = {}
    _adapter: ClassVar[TypeAdapter[Any] | None] = None

    @classmethod
    def variants(cls) -> dict[str, type[Self]]:
        """The variants of this family by their kind, in the order they were defined."""
        return dict(cls._variants)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if PartConfig in cls.__bases__:
            cls._variants = {}
        elif cls._is_variant():
            cls._register()

    @classmethod
    def _is_variant(cls) -> bool:
        return "kind" in cls.model_fields

    @classmethod
    def _family(cls) -> type["PartConfig"]:
        return next(base for base in cls.__mro__ if PartConfig in base.__bases__)

    @classmethod
    def _register(cls) -> None:
        kind = cls.model_fields["kind"].default
        if not isinstance(kind, str):
            raise ConfigError(
                f"{cls.__name__}.kind needs a literal with a default, as in "
                f'kind: Literal["my_kind"] = "my_kind"'
            )
        family = cls._family()
        other = family._variants.get(kind)
        # The same name again is a notebook cell that was run twice: the new class replaces the old.
        if other is not None and _full_name(other) != _full_name(cls):
            raise ConfigError(
                f'kind "{kind}" of {cls.__name__} is taken by {_full_name(other)}; choose another'
            )
        family._variants[kind] = cls
        family._adapter = None

    @classmethod
    def _any_variant(cls) -> TypeAdapter[Any]:
        """The union of all variants so far, told apart by `kind`."""
        family = cls._family()
        if family._adapter is None:
            union: Any = Union[tuple(family._variants.values())]  # noqa: UP007
            variant: Any = Annotated[union, Field(discriminator="kind")]
            family._adapter = TypeAdapter(variant)
        return family._adapter

    @classmethod
    def _validate(cls, value: Any) -> Any:
        """The variant that `value`, an instance or a mapping with a kind, describes."""
        return cls._any_variant().validate_python(value)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if Config in cls.__bases__ or cls._is_variant():
            return handler(source)
        # The variants are looked up when a value is read, not now: more may be defined later.
        schema = core_schema.no_info_plain_validator_function(cls._validate)
        schema["serialization"] = core_schema.simple_ser_schema("any")
        return schema

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if cls._is_variant():
            return handler(schema)
        return handler(cls._any_variant().core_schema)


def validation_message(error: ValidationError, fields: Iterable[str] = ()) -> str:
    """What is wrong, where, and with which value, on one line.

    A misspelt field comes before a missing one, which is likely the same mistake.
    """
    first = min(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
    title = error.title
    if title.startswith("_"):  # a helper type of ours, not a name that users know
        title = ""
    location = ".".join(filter(None, (title, *map(str, first["loc"]))))
    value = repr(first["input"])
    shows_value = first["type"] not in _SELF_EXPLANATORY and len(value) <= _MAX_VALUE_LENGTH
    if shows_value and location:
        location = f"{location}={value}"
    return f"{location}: {_sentence(first, fields)}".removeprefix(": ")


def _sentence(details: ErrorDetails, fields: Iterable[str]) -> str:
    match details["type"]:
        case "extra_forbidden":
            names = [field for field in fields if field != "kind"]
            if not names:
                return "there is no such field"
            return unknown("field", str(details["loc"][-1]), names)
        case "model_attributes_type":
            return "a config is needed here, as in LayerNorm() or Rope()"
        case "union_tag_invalid":
            tags = details["ctx"]["expected_tags"].split(",")
            kinds = [tag.strip(" '") for tag in tags]
            sentence = unknown("kind", details["ctx"]["tag"], kinds)
            if "did you mean" in sentence:
                return sentence
            return f"{sentence}; if a package defines it, import that package first"
    return details["msg"].removeprefix("Value error, ")


def _full_name(part: type) -> str:
    return f"{part.__module__}.{part.__qualname__}"
