"""What a safetensors file says about itself: its tensors, and where each lies.

    8 bytes       N, little-endian
    N bytes       {"__metadata__": {…}, "name": {"dtype": …, "shape": …, "data_offsets": [a, b]}, …}
    the rest      the numbers, tensor after tensor without a gap; offsets count from here

Everything is checked before anything is believed: https://huggingface.co/docs/safetensors.
"""

import math
import mmap
import os
import platform
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import JsonScanner, open_regular_file, os_error_reason, short_repr

# FOLDED weights/regular_file: An ordinary file held open: nothing that could hang, and nothing
#   that changes unnoticed.
# FOLDED weights/entry: One tensor of a safetensors file: what its header says of it, checked.
# FOLDED weights/tensors: One tensor out of a file: into memory of its own, or as a window on
#   the file.

# Without it a file larger than the memory could not be mapped, because all of it might be written
# to. Python knows the name only since 3.13; the number is that of the machines listed.
_USUAL = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")

_NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000 if _USUAL else 0)


class RegularFile:
    """A file that stays the one that was opened, even when its name is given to another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_regular_file(path)
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor)
        self.size = found.st_size
        self._changed = found.st_mtime_ns
        self._map: mmap.mmap | None = None

    def read(self, start: int, length: int) -> bytearray:
        """That many bytes from there on."""
        room = bytearray(length)
        self.fill(memoryview(room), start)
        return room

    def fill(self, room: memoryview, start: int) -> None:
        """Put the bytes from there on into `room`, all of it."""
        self._check_open()
        done = 0
        while done < len(room):
            try:
                got = os.preadv(self._descriptor, [room[done:]], start + done)
            except OSError as error:
                raise BundleError(f"cannot read {self.path}: {os_error_reason(error)}") from error
            if got == 0:
                raise BundleError(
                    f"{self.path} ends at byte {start + done}, but had {self.size} when it was "
                    "opened; it was cut off meanwhile, so get it again"
                )
            done += got
        self._check_same()

    def mapped(self) -> mmap.mmap:
        """The file as memory of which every page is read when it is first used.

        What is written there stays in this process. Nobody may close it: tensors made from it do
        not say that they still need it, and it goes away by itself with the last of them.
        """
        self._check_open()
        self._check_same()
        if self._map is None:
            flags, both = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            try:
                self._map = mmap.mmap(self._descriptor, self.size, flags=flags, prot=both)
            except (OSError, ValueError) as error:
                raise BundleError(
                    f"cannot map {self.path} into memory: {os_error_reason(error)}; read it instead"
                ) from error
        return self._map

    def close(self) -> None:
        """Let go of the file; what was mapped stays as long as it is used."""
        self._closing()
        self._map = None

    def _check_open(self) -> None:
        if not self._closing.alive:  # its number may be another file's by now
            raise BundleError(f"{self.path} has been closed; open it again")

    def _check_same(self) -> None:
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.size, self._changed):
            raise BundleError(
                f"{self.path} was written to after it was opened ({self.size} bytes then, "
                f"{now.st_size} now); open it again once it is whole"
            )


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
class TensorEntry:
    """One tensor: its kind, its shape, and its bytes from `start` up to `end` of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def entry_of(file: RegularFile, name: str, given: object, first: int) -> TensorEntry:
    """The tensor that a member of the header describes; its numbers begin after byte `first`."""
    if not name:
        raise BundleError(
            f"{file.path} holds a tensor with an empty name; every tensor needs a name"
        )
    what = f"{file.path}: tensor {short_repr(name)}"
    if not isinstance(given, dict) or given.keys() != FIELDS:
        raise BundleError(
            f"{what} is described by {short_repr(given)}, and needs exactly dtype, shape and "
            "data_offsets; get the file again"
        )
    dtype = _dtype(what, given["dtype"])
    shape = _whole_numbers(what, "shape", given["shape"])
    offsets = _whole_numbers(what, "data_offsets", given["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BundleError(
            f"{what} has data_offsets {short_repr(list(offsets))}, and needs a begin and an end "
            "that is "
            "not before it; get the file again"
        )
    start, end = offsets
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > LARGEST:
        raise BundleError(
            f"{what} has shape {short_repr(list(shape))}, more than any machine can hold"
        )
    needed = math.prod(shape) * dtype.itemsize
    if end - start != needed:
        raise BundleError(
            f"{what} has {end - start} bytes, but {given['dtype']} of shape "
            f"{short_repr(list(shape))} "
            f"takes {needed}; get the file again"
        )
    if first + end > file.size:
        raise BundleError(
            f"{what} should end at byte {first + end}, but the file has {file.size}; it is cut "
            "off, so get it again"
        )
    return TensorEntry(dtype, shape, first + start, first + end)


def _dtype(what: str, given: object) -> torch.dtype:
    if not isinstance(given, str) or given not in DTYPES:
        raise BundleError(
            f"{what} has the unknown dtype {short_repr(given)}; convert it to one of "
            f"{', '.join(DTYPES)}"
        )
    return DTYPES[given]


def _whole_numbers(what: str, field: str, given: object) -> tuple[int, ...]:
    if not isinstance(given, list):
        raise BundleError(f"{what} has {field} {short_repr(given)}, not a list; get the file again")
    for n in given:
        if type(n) is not int or not 0 <= n <= LARGEST:  # True is an int to isinstance
            raise BundleError(
                f"{what} has {short_repr(n)} in its {field}, not a whole number from 0 to "
                f"{LARGEST}; "
                "get the file again"
            )
    return tuple(given)


LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors library too

LONGEST_ENTRY = 4096  # characters

METADATA = "__metadata__"


def read_header(file: RegularFile) -> Mapping[str, TensorEntry]:
    """The tensors in the order of their bytes, after checking that every byte is described once."""
    length = _length(file)
    walk = JsonScanner(file.read(8, length), f"the header of {file.path}")

    def member(name: str) -> TensorEntry | None:
        if name == METADATA:
            walk.read_string_map(METADATA)  # the writer's notes, checked and left
            return None
        return entry_of(file, name, walk.read_value(LONGEST_ENTRY), 8 + length)

    if not walk.text.startswith("{"):
        raise BundleError(
            f"the header of {file.path} begins with {short_repr(walk.text[:20])} instead of a {{; "
            "give a safetensors file"
        )
    found = walk.read_object(member)
    walk.expect_end()
    entries = {name: entry for name, entry in found.items() if entry is not None}
    ordered = sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))
    _check_cover(file, ordered, 8 + length)
    return dict(ordered)


def _length(file: RegularFile) -> int:
    if file.size < 8:
        raise BundleError(
            f"{file.path} has {file.size} bytes, and a safetensors file at least 8; get it again"
        )
    first = file.read(0, 8)
    if first == b"version ":
        raise BundleError(
            f"{file.path} seems to be a Git LFS pointer, not the weights; run git lfs pull"
        )
    length = int.from_bytes(first, "little")
    if not 0 < length <= LONGEST_HEADER:
        raise BundleError(
            f"{file.path} announces a header of {length} bytes, where 1 to {LONGEST_HEADER} are "
            "possible; it is damaged or no safetensors file"
        )
    if 8 + length > file.size:
        raise BundleError(
            f"{file.path} ends at byte {file.size}, within its header of {length} bytes; it is cut "
            "off, so get it again"
        )
    return length


def _check_cover(file: RegularFile, ordered: list[tuple[str, TensorEntry]], first: int) -> None:
    """Tensors follow each other without gap or overlap, up to the last byte of the file."""
    reached, before = first, "the header"
    for name, entry in ordered:
        if entry.start != reached:
            wrong = "overlaps" if entry.start < reached else "leaves a hole after"
            raise BundleError(
                f"{file.path}: tensor {short_repr(name)} begins at byte {entry.start} and {wrong} "
                f"{before}, which ends at {reached}; tensors must follow each other without a gap"
            )
        reached, before = entry.end, short_repr(name)
    if reached != file.size:
        raise BundleError(
            f"{file.path} has {file.size} bytes, {file.size - reached} more than its header "
            "describes; a safetensors file ends with its last tensor, so get it again"
        )


CONVERSION_BYTES = (
    1 << 18
)  # bytes held besides the result of a conversion; larger ones leave holes in memory


def read_tensor(
    file: RegularFile, name: str, entry: TensorEntry, dtype: torch.dtype, room: Tensor | None = None
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
    step = CONVERSION_BYTES // entry.dtype.itemsize
    piece = torch.empty(min(step, len(numbers)), dtype=entry.dtype, device="cpu")
    for at in range(0, len(numbers), step):
        part = piece[: len(numbers) - at]
        file.fill(_memory(part), entry.start + at * entry.dtype.itemsize)
        _check_truth(file, name, part)
        numbers[at : at + step].copy_(part)
    return out


def map_tensor(file: RegularFile, name: str, entry: TensorEntry) -> Tensor:
    """The tensor as a window on the file; read instead where numbers may not lie at its offset."""
    size = entry.dtype.itemsize
    if entry.start == entry.end or entry.start % size:
        return read_tensor(file, name, entry, entry.dtype)
    count = (entry.end - entry.start) // size
    window = file.mapped()
    numbers = torch.frombuffer(window, dtype=entry.dtype, count=count, offset=entry.start)
    _check_truth(file, name, numbers)
    return numbers.view(entry.shape)


def _within(room: Tensor, entry: TensorEntry) -> Tensor:
    return room[: math.prod(entry.shape)].view(entry.shape)


def _room(file: RegularFile, name: str, entry: TensorEntry, dtype: torch.dtype) -> Tensor:
    try:
        return torch.empty(entry.shape, dtype=dtype, device="cpu")
    except RuntimeError as error:
        raise BundleError(
            f"{file.path}: tensor {short_repr(name)} of shape {short_repr(list(entry.shape))} "
            "does not fit "
            f"into memory as {dtype}; map it, or use a machine with more memory"
        ) from error


def _memory(numbers: Tensor) -> memoryview:
    return numbers.view(torch.uint8).numpy().data


def _check_truth(file: RegularFile, name: str, numbers: Tensor) -> None:
    """Torch does not say what a bool other than 0 and 1 means, so there is none."""
    if numbers.dtype == torch.bool and len(numbers) and numbers.view(torch.uint8).max() > 1:
        raise BundleError(
            f"{file.path}: tensor {short_repr(name)} is BOOL but holds bytes other than 0 and 1; "
            "get "
            "the file again"
        )
