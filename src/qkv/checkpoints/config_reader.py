"""Typed, validated access to a Hugging Face config.json.

A config.json is untrusted input: sizes may be negative, absurdly large or of the wrong type. Each
method of `ConfigReader` reads one field, checks it, and raises a `ConfigError` that names the
file, the field, the value and what was expected.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from qkv.errors import ConfigError, unknown
from qkv.files import short_repr

T = TypeVar("T")

HeadName = Literal["vector", "pooler", "masked", "labels"]

# Vocabularies are the largest dimension of any published model: the largest have about 2^18 rows.
MAX_SIZE = 1 << 24
MAX_LAYERS = 2048


@dataclass(frozen=True)
class ConfigReader:
    """The fields of one JSON object. A field that is absent or null has the value `default`.

    head: the output to build, overriding the class that the config names.
    """

    fields: Mapping[str, Any]
    location: str = "config.json"
    head: HeadName | None = None

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def size(self, name: str, default: int | None = None, maximum: int = MAX_SIZE) -> int:
        """An integer from 1 to `maximum`."""
        value = self._value(name, default)
        # bool is a subclass of int in Python, and `true` is not a size.
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
            raise self.error(name, value, f"an integer from 1 to {maximum:,}")
        return int(value)

    def layers(self, name: str, default: int | None = None) -> int:
        return self.size(name, default, MAX_LAYERS)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:  # JSON integers are unbounded, 10^400 has no float
            number = math.inf
        if not math.isfinite(number):
            raise self.error(name, value, "a finite number")
        return number

    def positive(self, name: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.number(name, default)
        if value <= 0:
            raise self.error(name, value, "a number above 0")
        return value

    def fraction(self, name: str, default: float = 0.0) -> float:
        """A number in [0, 1), such as a dropout rate."""
        value = self.number(name, default)
        if not 0.0 <= value < 1.0:
            raise self.error(name, value, "a number from 0 to below 1")
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def string(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.error(name, value, "a string")
        return value

    def one_of(self, name: str, choices: Mapping[str, T], default: str | None = None) -> T:
        """The entry of `choices` under the field's string."""
        value = self.string(name, default)
        if value not in choices:
            raise ConfigError(f"{self.location}: {unknown(name, value, choices)}")
        return choices[value]

    def section(self, name: str) -> "ConfigReader":
        """A nested object; empty if absent."""
        value = self.fields.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(name, value, "an object")
        return ConfigReader(value, f"{self.location}: {name}")

    def items(self, name: str) -> Sequence[Any]:
        """A list; empty if absent."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(name, value, "a list")
        return value

    def require(self, name: str, allowed: Sequence[Any], why: str) -> None:
        """Raises unless the field is absent or has one of these values.

        why: completes the sentence "name is value, which …".
        """
        value = self.fields.get(name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{self.location}: {name} is {short_repr(value)}, which {why}")

    def error(self, name: str, value: Any, expected: str) -> ConfigError:
        """The error for a field that is missing or has a bad value; the caller raises it."""
        if value is None:
            return ConfigError(f"{self.location}: {name} is missing; expected {expected}")
        return ConfigError(f"{self.location}: {name} is {short_repr(value)}; expected {expected}")

    def _value(self, name: str, default: Any) -> Any:
        value = self.fields.get(name)
        if value is None:
            return default
        return value
