"""A compiled library, opened with ctypes: typed functions, and structs checked for their size."""

import ctypes
from collections.abc import Callable, Iterable
from ctypes import c_char_p, c_long
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class Library:
    """The functions of a library, which all have the prefix `qkv_`."""

    def __init__(self, path: Path, structures: Iterable[type[ctypes.Structure]]) -> None:
        self.path = path
        self.functions = ctypes.CDLL(str(path))
        self._check_sizes(structures)

    def function(self, name: str, *arguments: Any, result: Any = None) -> Callable[..., Any]:
        """The function with that name and those ctypes types."""
        function = getattr(self.functions, f"qkv_{name}")
        function.argtypes = arguments
        function.restype = result
        typed: Callable[..., Any] = function
        return typed

    def _check_sizes(self, structures: Iterable[type[ctypes.Structure]]) -> None:
        """A struct that differs between C++ and Python would be read as garbage, silently."""
        sizeof = self.function("sizeof", c_char_p, result=c_long)
        for structure in structures:
            name = structure.__name__.removeprefix("_")
            size = sizeof(name.encode())
            if size != ctypes.sizeof(structure):
                raise RuntimeError(
                    f"{self.path.name}: struct {name} has {size} bytes in C++ and "
                    f"{ctypes.sizeof(structure)} in Python"
                )


def contiguous_float32(x: Tensor) -> Tensor:
    """x as the kernels read it."""
    if x.dtype != torch.float32:
        raise TypeError(f"the kernels take torch.float32, not {x.dtype}; leave out autocast")
    return x.contiguous()


def pointer(t: Tensor | None) -> int | None:
    """The address of the first number, or a null pointer."""
    if t is None:
        return None
    return t.data_ptr()


def thread_count() -> int:
    """Kernels use as many threads as torch does."""
    return torch.get_num_threads()
