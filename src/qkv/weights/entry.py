"""One tensor of a safetensors file: what its header says of it, checked."""

import math
from dataclasses import dataclass

import torch

from qkv.errors import BundleError
from qkv.files import shown
from qkv.weights.regular_file import RegularFile

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
FIELDS = {"dtype", "shape", "data_offsets"}
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: its kind, its shape, and its bytes from `start` up to `end` of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def entry_of(file: RegularFile, name: str, given: object, first: int) -> Entry:
    """The tensor that a member of the header describes; its numbers begin after byte `first`."""
    if not name:
        raise BundleError(
            f"{file.path} holds a tensor with an empty name; every tensor needs a name"
        )
    what = f"{file.path}: tensor {shown(name)}"
    if not isinstance(given, dict) or given.keys() != FIELDS:
        raise BundleError(
            f"{what} is described by {shown(given)}, and needs exactly dtype, shape and "
            "data_offsets; get the file again"
        )
    dtype = _dtype(what, given["dtype"])
    shape = _whole_numbers(what, "shape", given["shape"])
    offsets = _whole_numbers(what, "data_offsets", given["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BundleError(
            f"{what} has data_offsets {shown(list(offsets))}, and needs a begin and an end that is "
            "not before it; get the file again"
        )
    start, end = offsets
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > LARGEST:
        raise BundleError(f"{what} has shape {shown(list(shape))}, more than any machine can hold")
    needed = math.prod(shape) * dtype.itemsize
    if end - start != needed:
        raise BundleError(
            f"{what} has {end - start} bytes, but {given['dtype']} of shape {shown(list(shape))} "
            f"takes {needed}; get the file again"
        )
    if first + end > file.size:
        raise BundleError(
            f"{what} should end at byte {first + end}, but the file has {file.size}; it is cut "
            "off, so get it again"
        )
    return Entry(dtype, shape, first + start, first + end)


def _dtype(what: str, given: object) -> torch.dtype:
    if not isinstance(given, str) or given not in DTYPES:
        raise BundleError(
            f"{what} has the unknown dtype {shown(given)}; convert it to one of {', '.join(DTYPES)}"
        )
    return DTYPES[given]


def _whole_numbers(what: str, field: str, given: object) -> tuple[int, ...]:
    if not isinstance(given, list):
        raise BundleError(f"{what} has {field} {shown(given)}, not a list; get the file again")
    for n in given:
        if type(n) is not int or not 0 <= n <= LARGEST:  # True is an int to isinstance
            raise BundleError(
                f"{what} has {shown(n)} in its {field}, not a whole number from 0 to {LARGEST}; "
                "get the file again"
            )
    return tuple(given)
