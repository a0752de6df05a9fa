"""Reading one safetensors file without trusting it.

    8 bytes       N, little-endian
    N bytes       {"__metadata__": {…}, "name": {"dtype": …, "shape": …, "data_offsets": [a, b]}, …}
    the rest      the data, tensor after tensor without a gap; offsets count from here

The header is validated completely before any tensor is read: every byte of the data belongs to
exactly one tensor. Tensors are read into their own memory, or mapped as a view of the file.
https://huggingface.co/docs/safetensors
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

# Without this flag a file larger than the memory could not be mapped, because all of it might be
# written to. Python knows the constant only since 3.13; its value here is that of these machines.
_HAS_KNOWN_FLAG = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
MAP_NORESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000 if _HAS_KNOWN_FLAG else 0)


class RegularFile:
    """An open regular file: the one that was opened, even if its name is reused meanwhile.

    Reading raises BundleError if the file was modified since.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_regular_file(path)
        self._finalizer = weakref.finalize(self, os.close, self._descriptor)
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        self._modified = status.st_mtime_ns
        self._map: mmap.mmap | None = None

    def read(self, start: int, length: int) -> bytearray:
        """`length` bytes from `start` on."""
        buffer = bytearray(length)
        self.read_into(memoryview(buffer), start)
        return buffer

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill the buffer with the bytes from `start` on."""
        self._check_open()
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._descriptor, [buffer[done:]], start + done)
            except OSError as error:
                raise BundleError(f"cannot read {self.path}: {os_error_reason(error)}") from error
            if count == 0:
                raise BundleError(
                    f"{self.path} ends at byte {start + done}, but had {self.size} when it was "
                    "opened; it was truncated meanwhile, so get it again"
                )
            done += count
        self._check_same()

    def memory_map(self) -> mmap.mmap:
        """The file as private memory; every page is read when it is first used.

        Writes stay in this process. The mapping must not be closed: tensors made from it do not
        count as its users in Python, and it is released with the last of them.
        """
        self._check_open()
        self._check_same()
        if self._map is None:
            flags = mmap.MAP_PRIVATE | MAP_NORESERVE
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            try:
                self._map = mmap.mmap(self._descriptor, self.size, flags=flags, prot=protection)
            except (OSError, ValueError) as error:
                raise BundleError(
                    f"cannot map {self.path} into memory: {os_error_reason(error)}; read it instead"
                ) from error
        return self._map

    def close(self) -> None:
        """Close the file; mapped memory stays valid as long as it is used."""
        self._finalizer()
        self._map = None

    def _check_open(self) -> None:
        if not self._finalizer.alive:  # its descriptor may be another file's by now
            raise BundleError(f"{self.path} has been closed; open it again")

    def _check_same(self) -> None:
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.size, self._modified):
            raise BundleError(
                f"{self.path} was written to after it was opened ({self.size} bytes then, "
                f"{now.st_size} now); open it again once it is complete"
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

ENTRY_FIELDS = {"dtype", "shape", "data_offsets"}
MAX_INT = 2**63 - 1  # of sizes and offsets


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor: its dtype, its shape, and its bytes [start, end) in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


def parse_entry(file: RegularFile, name: str, description: object, data_start: int) -> TensorEntry:
    """The tensor that a member of the header describes; its offsets count from `data_start`."""
    if not name:
        raise BundleError(
            f"{file.path} holds a tensor with an empty name; every tensor needs a name"
        )
    label = f"{file.path}: tensor {short_repr(name)}"
    if not isinstance(description, dict) or description.keys() != ENTRY_FIELDS:
        raise BundleError(
            f"{label} is described by {short_repr(description)}, and needs exactly dtype, shape "
            "and data_offsets; get the file again"
        )
    dtype = _parse_dtype(label, description["dtype"])
    shape = _parse_integers(label, "shape", description["shape"])
    offsets = _parse_integers(label, "data_offsets", description["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise BundleError(
            f"{label} has data_offsets {short_repr(list(offsets))}, and needs a begin and an end "
            "that is not before it; get the file again"
        )
    start, end = offsets
    if math.prod(max(n, 1) for n in shape) * dtype.itemsize > MAX_INT:
        raise BundleError(
            f"{label} has shape {short_repr(list(shape))}, more than any machine can hold"
        )
    expected_bytes = math.prod(shape) * dtype.itemsize
    if end - start != expected_bytes:
        raise BundleError(
            f"{label} has {end - start} bytes, but {description['dtype']} of shape "
            f"{short_repr(list(shape))} takes {expected_bytes}; get the file again"
        )
    if data_start + end > file.size:
        raise BundleError(
            f"{label} should end at byte {data_start + end}, but the file has {file.size}; it is "
            "truncated, so get it again"
        )
    return TensorEntry(dtype, shape, data_start + start, data_start + end)


def _parse_dtype(label: str, value: object) -> torch.dtype:
    if not isinstance(value, str) or value not in DTYPES:
        raise BundleError(
            f"{label} has the unknown dtype {short_repr(value)}; convert it to one of "
            f"{', '.join(DTYPES)}"
        )
    return DTYPES[value]


def _parse_integers(label: str, field: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise BundleError(
            f"{label} has {field} {short_repr(value)}, not a list; get the file again"
        )
    for n in value:
        if type(n) is not int or not 0 <= n <= MAX_INT:  # True is an int to isinstance
            raise BundleError(
                f"{label} has {short_repr(n)} in its {field}, not an integer from 0 to {MAX_INT}; "
                "get the file again"
            )
    return tuple(value)


MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library too
MAX_ENTRY_CHARACTERS = 4096

METADATA = "__metadata__"


def read_header(file: RegularFile) -> Mapping[str, TensorEntry]:
    """The tensors in the order of their bytes; raises unless they cover the data exactly once."""
    length = _read_header_length(file)
    scanner = JsonScanner(file.read(8, length), f"the header of {file.path}")

    def read_entry(name: str) -> TensorEntry | None:
        if name == METADATA:
            scanner.read_string_map(METADATA)  # checked, but not used
            return None
        return parse_entry(file, name, scanner.read_value(MAX_ENTRY_CHARACTERS), 8 + length)

    if not scanner.text.startswith("{"):
        raise BundleError(
            f"the header of {file.path} begins with {short_repr(scanner.text[:20])} instead of a "
            f"{{; give a safetensors file"
        )
    members = scanner.read_object(read_entry)
    scanner.expect_end()
    entries = {name: entry for name, entry in members.items() if entry is not None}
    ordered = sorted(entries.items(), key=lambda item: (item[1].start, item[1].end))
    _check_coverage(file, ordered, 8 + length)
    return dict(ordered)


def _read_header_length(file: RegularFile) -> int:
    if file.size < 8:
        raise BundleError(
            f"{file.path} has {file.size} bytes, and a safetensors file at least 8; get it again"
        )
    prefix = file.read(0, 8)
    if prefix == b"version ":
        raise BundleError(
            f"{file.path} seems to be a Git LFS pointer, not the weights; run git lfs pull"
        )
    length = int.from_bytes(prefix, "little")
    if not 0 < length <= MAX_HEADER_BYTES:
        raise BundleError(
            f"{file.path} announces a header of {length} bytes, where 1 to {MAX_HEADER_BYTES} are "
            "possible; it is damaged or not a safetensors file"
        )
    if 8 + length > file.size:
        raise BundleError(
            f"{file.path} ends at byte {file.size}, within its header of {length} bytes; it is "
            "truncated, so get it again"
        )
    return length


def _check_coverage(
    file: RegularFile, ordered: list[tuple[str, TensorEntry]], data_start: int
) -> None:
    """Tensors must follow each other without gap or overlap, up to the last byte of the file."""
    position = data_start
    previous = "the header"
    for name, entry in ordered:
        if entry.start != position:
            relation = "overlaps" if entry.start < position else "leaves a hole after"
            raise BundleError(
                f"{file.path}: tensor {short_repr(name)} begins at byte {entry.start} and "
                f"{relation} {previous}, which ends at {position}; tensors must follow each other "
                "without a gap"
            )
        position = entry.end
        previous = short_repr(name)
    if position != file.size:
        raise BundleError(
            f"{file.path} has {file.size} bytes, {file.size - position} more than its header "
            "describes; a safetensors file ends with its last tensor, so get it again"
        )


# Bytes held besides the result of a conversion; larger buffers fragment the heap.
CONVERSION_BYTES = 1 << 18


def read_tensor(
    file: RegularFile,
    name: str,
    entry: TensorEntry,
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """The tensor as `dtype`, converted chunk by chunk.

    The result is a view of the beginning of `out` (any number of elements of that dtype), or has
    memory of its own.
    """
    if out is None:
        result = _allocate(file, name, entry, dtype)
    else:
        result = out[: math.prod(entry.shape)].view(entry.shape)
    elements = result.view(-1)
    if dtype == entry.dtype:
        file.read_into(_buffer(elements), entry.start)
        _check_bools(file, name, elements)
        return result
    step = CONVERSION_BYTES // entry.dtype.itemsize
    staging = torch.empty(min(step, len(elements)), dtype=entry.dtype, device="cpu")
    for start in range(0, len(elements), step):
        chunk = staging[: len(elements) - start]
        file.read_into(_buffer(chunk), entry.start + start * entry.dtype.itemsize)
        _check_bools(file, name, chunk)
        elements[start : start + step].copy_(chunk)
    return result


def map_tensor(file: RegularFile, name: str, entry: TensorEntry) -> Tensor:
    """The tensor as a view of the mapped file; read instead where its offset is not aligned."""
    size = entry.dtype.itemsize
    if entry.start == entry.end or entry.start % size:
        return read_tensor(file, name, entry, entry.dtype)
    count = (entry.end - entry.start) // size
    memory = file.memory_map()
    elements = torch.frombuffer(memory, dtype=entry.dtype, count=count, offset=entry.start)
    _check_bools(file, name, elements)
    return elements.view(entry.shape)


def _allocate(file: RegularFile, name: str, entry: TensorEntry, dtype: torch.dtype) -> Tensor:
    try:
        return torch.empty(entry.shape, dtype=dtype, device="cpu")
    except RuntimeError as error:
        raise BundleError(
            f"{file.path}: tensor {short_repr(name)} of shape {short_repr(list(entry.shape))} does "
            f"not fit into memory as {dtype}; map it, or use a machine with more memory"
        ) from error


def _buffer(elements: Tensor) -> memoryview:
    """The memory of a tensor; its bytes, since numpy has no bfloat16."""
    return elements.view(torch.uint8).numpy().data


def _check_bools(file: RegularFile, name: str, elements: Tensor) -> None:
    """Torch does not define what a bool byte other than 0 and 1 means, so none is accepted."""
    if elements.dtype != torch.bool or not len(elements):
        return
    if elements.view(torch.uint8).max() > 1:
        raise BundleError(
            f"{file.path}: tensor {short_repr(name)} is BOOL but holds bytes other than 0 and 1; "
            "get the file again"
        )
