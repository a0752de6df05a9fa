"""Values of the metadata as what they should be: whole numbers in range, texts, lists of these."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from qkv.errors import BundleError
from qkv.files import shown

T = TypeVar("T")

MOST = 2**31 - 1


class Facts:
    """The metadata of one file, asked by key; a value of the wrong sort is refused by name.

    A key that is absent gives `default`, or is refused when there is none.
    """

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self._metadata, self.path = metadata, path

    def __contains__(self, key: str) -> bool:
        return key in self._metadata

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata)

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        """A list is taken if all it holds is the same: one number for every layer."""
        value = self._get(key, default)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]
        if type(value) is not int or not least <= value <= MOST:
            raise self._wrong(key, value, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Above zero; a float32 is given as the short decimal it was made from, like 1e-05."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self._wrong(key, value, "a number above 0")
        with np.errstate(over="ignore"):
            single = np.float32(value)
        return float(str(single)) if float(single) == value else float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if type(value) is not bool:
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if type(value) is not str:
            raise self._wrong(key, value, "a text")
        return value

    def each(self, key: str, sort: type[T], default: list[T] | None = None) -> list[T]:
        """A list of values that are all of one sort."""
        value = self._get(key, default)
        if type(value) is not list or any(type(item) is not sort for item in value):
            raise self._wrong(key, value, f"a list of {sort.__name__}")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._metadata.get(key, default)
        if value is None:
            raise BundleError(f"{self.path} does not say {key}; it is no whole model")
        return value

    def _wrong(self, key: str, value: Any, wanted: str) -> BundleError:
        given = f"a list of {len(value)}" if isinstance(value, list) else shown(str(value))
        return BundleError(f"{self.path}: {key} is {given}; expected {wanted}")
