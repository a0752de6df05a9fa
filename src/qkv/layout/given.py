"""The config.json of a public checkpoint, asked field by field: what is absurd is refused."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from qkv.errors import ConfigError, unknown
from qkv.files import shown

T = TypeVar("T")
Head = Literal["vector", "pooler", "masked", "labels"]

LARGEST = 1 << 24  # of any size: vocabularies are the largest there are
MOST_LAYERS = 2048


@dataclass(frozen=True)
class Given:
    """Fields by name; each question says what is allowed and what an absent field means."""

    fields: Mapping[str, Any]
    place: str = "config.json"
    head: Head | None = None  # the output that is asked for, whatever the fields say

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def size(self, name: str, absent: int | None = None, largest: int = LARGEST) -> int:
        """A whole number of 1 or more."""
        value = self._value(name, absent)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
            raise self.wrong(name, value, f"a whole number from 1 to {largest:,}")
        return int(value)

    def layers(self, name: str, absent: int | None = None) -> int:
        return self.size(name, absent, MOST_LAYERS)

    def number(self, name: str, absent: float | None = None) -> float:
        value = self._value(name, absent)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        try:
            number = float(value)
        except OverflowError:  # a whole number may be longer than any with decimals
            number = math.inf
        if not math.isfinite(number):
            raise self.wrong(name, value, "a finite number")
        return number

    def positive(self, name: str, absent: float | None = None) -> float:
        value = self.number(name, absent)
        if value <= 0:
            raise self.wrong(name, value, "a number above 0")
        return value

    def share(self, name: str, absent: float = 0.0) -> float:
        """A part of 1, such as how much is dropped."""
        value = self.number(name, absent)
        if not 0.0 <= value < 1.0:
            raise self.wrong(name, value, "a number from 0 to below 1")
        return value

    def flag(self, name: str, absent: bool | None = None) -> bool:
        value = self._value(name, absent)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def word(self, name: str, absent: str | None = None) -> str:
        value = self._value(name, absent)
        if not isinstance(value, str):
            raise self.wrong(name, value, "a text")
        return value

    def one_of(self, name: str, known: Mapping[str, T], absent: str | None = None) -> T:
        """What `known` says of that name."""
        value = self.word(name, absent)
        if value not in known:
            raise ConfigError(f"{self.place}: {unknown(name, value, known)}")
        return known[value]

    def inner(self, name: str) -> "Given":
        """An object inside, empty if it is absent."""
        value = self.fields.get(name)
        if value is None:
            return Given({}, f"{self.place}: {name}")
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return Given(value, f"{self.place}: {name}")

    def items(self, name: str) -> Sequence[Any]:
        """A list, empty if it is absent."""
        value = self.fields.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def must_be(self, name: str, allowed: Sequence[Any], why: str) -> None:
        """Raise unless the field is absent or one of these."""
        value = self.fields.get(name)
        if value is not None and value not in allowed:
            raise ConfigError(f"{self.place}: {name} is {shown(value)}, which {why}")

    def wrong(self, name: str, value: Any, needed: str) -> ConfigError:
        if value is None:
            return ConfigError(f"{self.place}: {name} is missing; {needed} is needed")
        return ConfigError(f"{self.place}: {name} is {shown(value)}, but {needed} is needed")

    def _value(self, name: str, absent: Any) -> Any:
        value = self.fields.get(name)
        return absent if value is None else value


def told_dropout(given: Given, name: str, absent: float) -> list[str]:
    """A note on dropout of attention weights, which that field says: ours has none."""
    rate = given.share(name, absent)
    return [f"dropout of attention weights ({rate:g}), which only training would use"] * bool(rate)
