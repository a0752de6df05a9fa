"""One tensor out of a file: into memory of its own, or as a window on the file."""

import math

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import shown
from qkv.weights.entry import Entry
from qkv.weights.regular_file import RegularFile

PIECE = 1 << 18  # bytes held besides the result of a conversion; larger ones leave holes in memory


def read_tensor(
    file: RegularFile, name: str, entry: Entry, dtype: torch.dtype, room: Tensor | None = None
) -> Tensor:
    """The tensor as `dtype`, converted piece by piece: in the beginning of `room` (any number of
    that dtype), or in memory of its own.
    """
    out = _room(file, name, entry, dtype) if room is None else _within(room, entry)
    numbers = out.view(-1)
    if dtype == entry.dtype:
        file.fill(_memory(numbers), entry.start)
        _check_truth(file, name, numbers)
        return out
    step = PIECE // entry.dtype.itemsize
    piece = torch.empty(min(step, len(numbers)), dtype=entry.dtype, device="cpu")
    for at in range(0, len(numbers), step):
        part = piece[: len(numbers) - at]
        file.fill(_memory(part), entry.start + at * entry.dtype.itemsize)
        _check_truth(file, name, part)
        numbers[at : at + step].copy_(part)
    return out


def map_tensor(file: RegularFile, name: str, entry: Entry) -> Tensor:
    """The tensor as a window on the file; read instead where numbers may not lie at its offset."""
    size = entry.dtype.itemsize
    if entry.start == entry.end or entry.start % size:
        return read_tensor(file, name, entry, entry.dtype)
    count = (entry.end - entry.start) // size
    window = file.mapped()
    numbers = torch.frombuffer(window, dtype=entry.dtype, count=count, offset=entry.start)
    _check_truth(file, name, numbers)
    return numbers.view(entry.shape)


def _within(room: Tensor, entry: Entry) -> Tensor:
    return room[: math.prod(entry.shape)].view(entry.shape)


def _room(file: RegularFile, name: str, entry: Entry, dtype: torch.dtype) -> Tensor:
    try:
        return torch.empty(entry.shape, dtype=dtype, device="cpu")
    except RuntimeError as error:
        raise BundleError(
            f"{file.path}: tensor {shown(name)} of shape {shown(list(entry.shape))} does not fit "
            f"into memory as {dtype}; map it, or use a machine with more memory"
        ) from error


def _memory(numbers: Tensor) -> memoryview:
    return numbers.view(torch.uint8).numpy().data


def _check_truth(file: RegularFile, name: str, numbers: Tensor) -> None:
    """Torch does not say what a bool other than 0 and 1 means, so there is none."""
    if numbers.dtype == torch.bool and len(numbers) and numbers.view(torch.uint8).max() > 1:
        raise BundleError(
            f"{file.path}: tensor {shown(name)} is BOOL but holds bytes other than 0 and 1; get "
            "the file again"
        )
