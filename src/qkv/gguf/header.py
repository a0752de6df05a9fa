"""Reads the header of a GGUF file: the metadata, and where each tensor is.

    "GGUF" · version · tensor count · metadata count │ key, type, value … │
    name, shape, type, offset … │ tensor data

Nothing in the file is trusted: every count and length is checked against the bytes that remain
before anything is allocated. An accepted header is consistent: no key or tensor occurs twice, and
every tensor is aligned, inside the file, and does not overlap another.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import os
import struct
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from qkv.errors import BundleError
from qkv.files import open_regular_file, os_error_reason, short_repr
from qkv.gguf.quants import GGML_TYPES, GgmlType

# The largest published vocabularies need a tenth of this. A file that claims more is refused
# before it is read into memory.
MAX_HEADER_BYTES = 2**28
MAX_HEADER_VALUES = 2**22

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 2**20
MAX_AXES = 4

# The least bytes an entry can take: a tensor has a name length, axis count, one axis, type and
# offset; a metadata entry a key length, a type and a one-byte value.
MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8
MIN_METADATA_BYTES = 8 + 4 + 1

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

# The value types of the metadata, by their id in the file.
NUMBER_TYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("u1"),  # bool
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}

BOOL = 7
STRING = 8
ARRAY = 9


class HeaderReader:
    """Reads values one after another from an open file, checking each length first."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.offset = 0
        self._file = file
        self._values = 0

    def read(self, count: int, what: str) -> bytes:
        """The next `count` bytes; `what` names them in errors."""
        remaining = self.size - self.offset
        if count > remaining:
            raise BundleError(
                f"{self.path} ends inside {what}, which needs {count} bytes where {remaining} "
                "remain; the file is truncated or damaged"
            )
        if self.offset + count > MAX_HEADER_BYTES:
            raise BundleError(
                f"{self.path} has {what} beyond byte {MAX_HEADER_BYTES}, more than any GGUF header "
                "needs; the file is damaged"
            )
        data = self._file.read(count)
        if len(data) != count:
            raise BundleError(f"{self.path} became shorter while it was read; try again")
        self.offset += count
        return data

    def u32(self, what: str) -> int:
        return int(U32.unpack(self.read(4, what))[0])

    def u64(self, what: str) -> int:
        return int(U64.unpack(self.read(8, what))[0])

    def count(self, what: str, min_bytes: int) -> int:
        """The number of entries that follow, if each takes at least `min_bytes`."""
        count = self.u64(f"the number of {what}")
        remaining = self.size - self.offset
        if count * min_bytes > remaining:
            raise BundleError(
                f"{self.path} claims to hold {count} {what}, but only {remaining} bytes follow; "
                "the file is truncated or damaged"
            )
        self._values += count
        if self._values > MAX_HEADER_VALUES:
            raise BundleError(
                f"{self.path} claims to hold {count} {what}, in total more than the "
                f"{MAX_HEADER_VALUES} values any model needs; the file is damaged"
            )
        return count

    def string(self, what: str) -> str:
        data = self.read(self.u64(what), what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BundleError(f"{self.path} has {what} that is not UTF-8 text") from error

    def value(self, key: str) -> Any:
        """A metadata value: a number, bool or string, or a list of one of these."""
        what = f"the value of {short_repr(key)}"
        value_type = self.u32(what)
        if value_type == STRING:
            return self.string(what)
        if value_type != ARRAY:
            return self._numbers(value_type, 1, what)[0]
        item_type = self.u32(what)
        if item_type == ARRAY:
            raise BundleError(f"{self.path}: {what} is a list of lists, which is not supported")
        if item_type == STRING:
            return [self.string(what) for _ in range(self.count(f"strings in {what}", 8))]
        width = self._dtype(item_type, what).itemsize
        return self._numbers(item_type, self.count(f"numbers in {what}", width), what)

    def _dtype(self, value_type: int, what: str) -> np.dtype[Any]:
        if value_type not in NUMBER_TYPES:
            raise BundleError(
                f"{self.path}: {what} has type {value_type}, which GGUF does not define; the file "
                "is damaged"
            )
        return NUMBER_TYPES[value_type]

    def _numbers(self, value_type: int, count: int, what: str) -> list[Any]:
        dtype = self._dtype(value_type, what)
        data = self.read(count * dtype.itemsize, what)
        values: list[Any] = np.frombuffer(data, dtype).tolist()
        if value_type != BOOL:
            return values
        if not set(values) <= {0, 1}:
            raise BundleError(f"{self.path}: {what} is neither true nor false; the file is damaged")
        return [bool(value) for value in values]


class TensorInfo(NamedTuple):
    """The storage of one tensor; its shape has the outermost axis first, as in torch."""

    ggml_type: GgmlType
    shape: tuple[int, ...]
    start: int  # from the beginning of the file
    bytes: int

    @property
    def end(self) -> int:
        return self.start + self.bytes


class Header(NamedTuple):
    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]
    fingerprint: tuple[int, int]  # size and modification time, to notice changes of the file


def read_header(path: Path) -> Header:
    try:
        if not path.is_file():
            raise BundleError(f"{path} is not a file; pass the path of a .gguf file")
        with os.fdopen(open_regular_file(path), "rb") as file:
            status = os.fstat(file.fileno())
            metadata, tensors = _read(HeaderReader(file, path, status.st_size))
    except OSError as error:
        raise BundleError(f"cannot read {path}: {os_error_reason(error)}") from error
    return Header(metadata, tensors, (status.st_size, status.st_mtime_ns))


def _read(reader: HeaderReader) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    _check_version(reader)
    tensor_count = reader.count("tensors", MIN_TENSOR_BYTES)
    metadata: dict[str, Any] = {}
    for _ in range(reader.count("values", MIN_METADATA_BYTES)):
        key = reader.string("a key")
        if key in metadata:
            raise BundleError(
                f"{reader.path} has the key {short_repr(key)} twice; the file is damaged"
            )
        metadata[key] = reader.value(key)
    alignment = _alignment(reader.path, metadata)
    infos: dict[str, TensorInfo] = {}
    for _ in range(tensor_count):
        name = reader.string("the name of a tensor")
        if name in infos:
            raise BundleError(
                f"{reader.path} has the tensor {short_repr(name)} twice; the file is damaged"
            )
        infos[name] = _read_tensor_info(reader, f"tensor {short_repr(name)}", alignment)
    # Offsets count from the start of the data, which follows the header on an aligned byte.
    data_start = -(-reader.offset // alignment) * alignment
    tensors = {name: info._replace(start=info.start + data_start) for name, info in infos.items()}
    _check_bounds(reader, tensors)
    return metadata, tensors


def _check_version(reader: HeaderReader) -> None:
    magic = reader.read(min(len(MAGIC), reader.size), "its first bytes")
    if magic != MAGIC:
        raise BundleError(
            f"{reader.path} is not a GGUF file: it begins with {magic!r}, not {MAGIC!r}"
        )
    version = reader.u32("its version")
    # Read with the wrong byte order, a small version number has three zero bytes at the low end.
    if version.to_bytes(4, "little")[:3] == b"\0\0\0":
        raise BundleError(
            f"{reader.path} is a big-endian GGUF file; only little-endian ones are supported"
        )
    if version not in VERSIONS:
        supported = " and ".join(map(str, VERSIONS))
        raise BundleError(
            f"{reader.path} is GGUF version {version}, supported are {supported}; convert the "
            "model again"
        )


def _alignment(path: Path, metadata: dict[str, Any]) -> int:
    alignment = metadata.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    is_power_of_two = type(alignment) is int and alignment.bit_count() == 1
    if not is_power_of_two or not 8 <= alignment <= MAX_ALIGNMENT:
        raise BundleError(
            f"{path}: {ALIGNMENT} is {short_repr(str(alignment))}; expected a power of two from 8 "
            f"to {MAX_ALIGNMENT}"
        )
    return int(alignment)


def _read_tensor_info(reader: HeaderReader, what: str, alignment: int) -> TensorInfo:
    """The entry of one tensor, with its offset from the start of the data."""
    axes = reader.u32(what)
    if not 1 <= axes <= MAX_AXES:
        raise BundleError(f"{reader.path}: {what} has {axes} axes; expected 1 to {MAX_AXES}")
    # GGUF lists the innermost axis first.
    shape = tuple(reader.u64(what) for _ in range(axes))[::-1]
    type_id = reader.u32(what)
    if type_id not in GGML_TYPES:
        raise BundleError(f"{reader.path}: {what} has the unknown ggml type {type_id}")
    ggml_type = GGML_TYPES[type_id]
    if 0 in shape or shape[-1] % ggml_type.block_size:
        raise BundleError(
            f"{reader.path}: {what} has shape {shape}; axes must not be empty, and rows of "
            f"{ggml_type.name} must be a multiple of {ggml_type.block_size}"
        )
    offset = reader.u64(what)
    if offset % alignment:
        raise BundleError(
            f"{reader.path}: {what} is at byte {offset} of the data, which is not a multiple of "
            f"the alignment {alignment}"
        )
    blocks = prod(shape) // ggml_type.block_size
    return TensorInfo(ggml_type, shape, offset, blocks * ggml_type.block_bytes)


def _check_bounds(reader: HeaderReader, tensors: dict[str, TensorInfo]) -> None:
    for name, info in tensors.items():
        if info.end > reader.size:
            raise BundleError(
                f"{reader.path}: tensor {short_repr(name)} of shape {info.shape} would end at byte "
                f"{info.end}, but the file has {reader.size}; it is truncated or damaged"
            )
    in_order = sorted(tensors.items(), key=lambda item: item[1].start)
    for (name, info), (next_name, next_info) in pairwise(in_order):
        if info.end > next_info.start:
            raise BundleError(
                f"{reader.path}: tensors {short_repr(name)} and {short_repr(next_name)} overlap; "
                "the file is damaged"
            )
