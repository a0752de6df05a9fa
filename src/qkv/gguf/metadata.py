"""A GGUF file as it is: values by key, and tensors by the names llama.cpp gives them."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import open_regular_file, os_error_reason, short_repr
from qkv.gguf.header import Place, read_head
from qkv.gguf.quants import READ, unpack

# FOLDED gguf/facts: Values of the metadata as what they should be: whole numbers in range,
#   texts, lists of these.

CHUNK = 2**20  # numbers unpacked at a time, so that memory stays near the size of the result


class File:
    """What one file holds; tensors are read when they are asked for."""

    metadata: Mapping[str, Any]

    def __init__(self, path: Path) -> None:
        self.path = path
        head = read_head(path)
        self.metadata = MappingProxyType(head.metadata)
        self._places = head.places
        self._stamp = head.stamp

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first, as in torch; the file itself says it the other way round."""
        return self._place(name).shape

    def kind(self, name: str) -> str:
        """How the tensor is packed: F32, Q8_0 …"""
        return self._place(name).kind.name

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The unpacked tensor, float32 unless another dtype is asked for."""
        place = self.check_kind(name)
        result = torch.empty(place.shape, dtype=dtype or torch.float32)
        flat = result.view(-1)
        step = CHUNK // place.kind.numbers  # blocks
        buffer = memoryview(bytearray(min(step * place.kind.bytes, place.bytes)))
        with self._opened() as file:
            file.seek(place.start)
            for first in range(0, flat.numel(), CHUNK):
                count = min(CHUNK, flat.numel() - first)
                raw = buffer[: count // place.kind.numbers * place.kind.bytes]
                if file.readinto(raw) != len(raw):
                    raise BundleError(f"{self.path} became shorter while it was read; try again")
                flat[first : first + count] = torch.from_numpy(unpack(place.kind, raw))
        return result

    def mmap(self, name: str) -> Tensor:
        """What `read` gives; F32 is not copied but paged in from the file when it is used.

        Writing to it changes memory only, never the file.
        """
        place = self.check_kind(name)
        if place.kind.name != "F32":
            return self.read(name)
        with self._opened() as file:
            pages = np.memmap(file, "<f4", mode="c", offset=place.start, shape=place.shape)
        return torch.from_numpy(pages)

    def _place(self, name: str) -> Place:
        if name not in self._places:
            raise BundleError(
                f"{self.path} has no tensor {short_repr(name)}; it has {len(self._places)} others"
            )
        return self._places[name]

    def check_kind(self, name: str) -> Place:
        """Where the tensor lies, if it is packed in a way that is read."""
        place = self._place(name)
        if place.kind.unpack is None:
            raise BundleError(
                f"{self.path}: tensor {short_repr(name)} is packed as {place.kind.name}, which is "
                "not "
                f"read; take a file whose tensors are {', '.join(READ)}"
            )
        return place

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader]:
        """The file, if it is still the one whose head was read."""
        try:
            with os.fdopen(open_regular_file(self.path), "rb") as file:
                facts = os.fstat(file.fileno())
                if (facts.st_size, facts.st_mtime_ns) != self._stamp:
                    raise BundleError(f"{self.path} was changed after it was opened; open it again")
                yield file
        except OSError as error:
            raise BundleError(f"cannot read {self.path}: {os_error_reason(error)}") from error


T = TypeVar("T")

MOST = 2**31 - 1


class Facts:
    """The metadata of one file, asked by key; a value of the wrong sort is refused by name.

    A key that is absent gives `default`, or is refused when there is none.
    """

    def __init__(self, metadata: Mapping[str, Any], path: Path) -> None:
        self._metadata = metadata
        self.path = path

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
        if float(single) == value:
            return float(str(single))
        return float(value)

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
        if isinstance(value, list):
            given = f"a list of {len(value)}"
        else:
            given = short_repr(str(value))
        return BundleError(f"{self.path}: {key} is {given}; expected {wanted}")
