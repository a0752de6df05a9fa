"""A GGUF file: typed access to its metadata, and its tensors under llama.cpp's names."""

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
from qkv.gguf.header import TensorInfo, read_header
from qkv.gguf.quants import SUPPORTED_TYPES, dequantize

T = TypeVar("T")

# Weights dequantized at a time, so that peak memory stays close to the size of the result.
CHUNK = 2**20
MAX_INTEGER = 2**31 - 1


class GgufFile:
    """One GGUF file. The header is read at once, tensors on demand."""

    metadata: Mapping[str, Any]

    def __init__(self, path: Path) -> None:
        self.path = path
        header = read_header(path)
        self.metadata = MappingProxyType(header.metadata)
        self._tensors = header.tensors
        self._fingerprint = header.fingerprint

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape with the outermost axis first, as in torch."""
        return self._info(name).shape

    def type_name(self, name: str) -> str:
        """The storage type: F32, Q8_0 …"""
        return self._info(name).ggml_type.name

    def read(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """The dequantized tensor, float32 unless `dtype` is given."""
        info = self.check_type(name)
        ggml_type = info.ggml_type
        result = torch.empty(info.shape, dtype=dtype or torch.float32)
        flat = result.view(-1)
        chunk_bytes = CHUNK // ggml_type.block_size * ggml_type.block_bytes
        buffer = memoryview(bytearray(min(chunk_bytes, info.bytes)))
        with self._open() as file:
            file.seek(info.start)
            for first in range(0, flat.numel(), CHUNK):
                count = min(CHUNK, flat.numel() - first)
                data = buffer[: count // ggml_type.block_size * ggml_type.block_bytes]
                if file.readinto(data) != len(data):
                    raise BundleError(f"{self.path} became shorter while it was read; try again")
                values = dequantize(ggml_type, data)
                flat[first : first + count] = torch.from_numpy(values)
        return result

    def mmap(self, name: str) -> Tensor:
        """As `read`, but F32 tensors are memory-mapped: writing to them never changes the file."""
        info = self.check_type(name)
        if info.ggml_type.name != "F32":
            return self.read(name)
        with self._open() as file:
            pages = np.memmap(file, "<f4", mode="c", offset=info.start, shape=info.shape)
        return torch.from_numpy(pages)

    def _info(self, name: str) -> TensorInfo:
        if name not in self._tensors:
            raise BundleError(
                f"{self.path} has no tensor {short_repr(name)}; it has {len(self._tensors)} others"
            )
        return self._tensors[name]

    def check_type(self, name: str) -> TensorInfo:
        """The storage of a tensor; raises if its type cannot be dequantized."""
        info = self._info(name)
        if info.ggml_type.decode is None:
            raise BundleError(
                f"{self.path}: tensor {short_repr(name)} is stored as {info.ggml_type.name}, which "
                f"is not supported; use a file with tensors of {', '.join(SUPPORTED_TYPES)}"
            )
        return info

    @contextmanager
    def _open(self) -> Iterator[BufferedReader]:
        """The open file; raises if it has changed since its header was read."""
        try:
            with os.fdopen(open_regular_file(self.path), "rb") as file:
                status = os.fstat(file.fileno())
                if (status.st_size, status.st_mtime_ns) != self._fingerprint:
                    raise BundleError(f"{self.path} was changed after it was opened; open it again")
                yield file
        except OSError as error:
            raise BundleError(f"cannot read {self.path}: {os_error_reason(error)}") from error


class Metadata:
    """Typed access to the metadata of one file; a value of the wrong type raises with its key.

    A key that is absent has the value `default`, or raises if there is none.
    """

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self._values = values
        self.path = path

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def integer(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        """An integer, or a list of equal ones: some files repeat a number for every layer."""
        value = self._get(key, default)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]
        if type(value) is not int or not minimum <= value <= MAX_INTEGER:
            raise self._error(key, value, f"an integer of at least {minimum}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number; a float32 becomes the shortest decimal that rounds to it (1e-05)."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self._error(key, value, "a number above 0")
        with np.errstate(over="ignore"):
            single = np.float32(value)
        if float(single) == value:
            return float(str(single))
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if type(value) is not bool:
            raise self._error(key, value, "true or false")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if type(value) is not str:
            raise self._error(key, value, "a string")
        return value

    def list_of(self, key: str, item_type: type[T], default: list[T] | None = None) -> list[T]:
        value = self._get(key, default)
        if type(value) is not list or any(type(item) is not item_type for item in value):
            raise self._error(key, value, f"a list of {item_type.__name__}")
        return value

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(key, default)
        if value is None:
            raise BundleError(f"{self.path} has no {key}; it is not a complete model")
        return value

    def _error(self, key: str, value: Any, expected: str) -> BundleError:
        text = short_repr(str(value))
        if isinstance(value, list):
            text = f"a list of {len(value)}"
        return BundleError(f"{self.path}: {key} is {text}; expected {expected}")
