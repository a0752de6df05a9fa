"""The head of a GGUF file: what the model is, and where each tensor lies.

    "GGUF" · version · tensors · values │ key, type, value … │ name, shape, kind, offset … │ data

A head that is accepted is consistent: no key or tensor twice, and every tensor aligned, inside
the file and clear of all others.

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
from qkv.gguf.quants import KINDS, Kind

# FOLDED gguf/cursor: Reading the head of a file that may lie: every length is held against what
#   is left of it.

# What a head may hold. The largest published vocabularies need a tenth of it; a file that asks
# for more is not read into memory to find out why.
MOST_BYTES = 2**28

MOST_VALUES = 2**22

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("u1"),  # a truth value
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}

TRUTH = 7
TEXT = 8
LIST = 9


class Cursor:
    """A place in an open file; what is read there is checked and then stepped over."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.at = 0
        self._file = file
        self._values = 0

    def take(self, count: int, what: str) -> bytes:
        left = self.size - self.at
        if count > left:
            raise BundleError(
                f"{self.path} ends inside {what}: it needs {count} bytes and {left} are left; "
                "the file is cut off or damaged"
            )
        if self.at + count > MOST_BYTES:
            raise BundleError(
                f"{self.path} has {what} beyond byte {MOST_BYTES}, where the head of a GGUF file "
                "is long over; it is damaged"
            )
        found = self._file.read(count)
        if len(found) != count:
            raise BundleError(f"{self.path} became shorter while it was read; try again")
        self.at += count
        return found

    def u32(self, what: str) -> int:
        return int(U32.unpack(self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(U64.unpack(self.take(8, what))[0])

    def count(self, what: str, least_bytes: int) -> int:
        """How many things follow, when each takes at least so many bytes."""
        count = self.u64(f"the number of {what}")
        if count * least_bytes > self.size - self.at:
            raise BundleError(
                f"{self.path} says it holds {count} {what}, but only {self.size - self.at} bytes "
                "follow; the file is cut off or damaged"
            )
        self._values += count
        if self._values > MOST_VALUES:
            raise BundleError(
                f"{self.path} says it holds {count} {what}; with all else in its head that is "
                f"more than the {MOST_VALUES} a model needs, so it is damaged"
            )
        return count

    def text(self, what: str) -> str:
        raw = self.take(self.u64(what), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BundleError(f"{self.path} has {what} that is not UTF-8 text") from error

    def value(self, key: str) -> Any:
        """One value of the metadata: a number, a truth value, a text or a list of one of these."""
        what = f"the value of {short_repr(key)}"
        kind = self.u32(what)
        if kind != LIST:
            return self._one(kind, what)
        kind = self.u32(what)
        if kind == LIST:
            raise BundleError(f"{self.path}: {what} is a list of lists; no model needs one")
        if kind == TEXT:
            return [self.text(what) for _ in range(self.count(f"texts as {what}", 8))]
        width = self._number(kind, what).itemsize
        return self._numbers(kind, self.count(f"numbers as {what}", width), what)

    def _one(self, kind: int, what: str) -> Any:
        if kind == TEXT:
            return self.text(what)
        return self._numbers(kind, 1, what)[0]

    def _number(self, kind: int, what: str) -> np.dtype[Any]:
        if kind not in NUMBERS:
            raise BundleError(
                f"{self.path}: {what} has type {kind}, which GGUF does not know; it is damaged"
            )
        return NUMBERS[kind]

    def _numbers(self, kind: int, count: int, what: str) -> list[Any]:
        dtype = self._number(kind, what)
        found: list[Any] = np.frombuffer(self.take(count * dtype.itemsize, what), dtype).tolist()
        if kind != TRUTH:
            return found
        if not set(found) <= {0, 1}:
            raise BundleError(f"{self.path}: {what} is neither true nor false; it is damaged")
        return [bool(value) for value in found]


MAGIC = b"GGUF"

VERSIONS = (2, 3)

MOST_AXES = 4

ALIGNMENT = "general.alignment"


class Place(NamedTuple):
    """Where one tensor lies, how it is packed, and its shape with the rows first."""

    kind: Kind
    shape: tuple[int, ...]
    start: int  # from the beginning of the file
    bytes: int


class Head(NamedTuple):
    metadata: dict[str, Any]
    places: dict[str, Place]
    stamp: tuple[int, int]  # changes when the file does


def read_head(path: Path) -> Head:
    try:
        if not path.is_file():
            raise BundleError(f"{path} is not a file; give the path of a .gguf file")
        with os.fdopen(open_regular_file(path), "rb") as file:
            facts = os.fstat(file.fileno())
            cursor = Cursor(file, path, facts.st_size)
            metadata, places = _read(cursor)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {os_error_reason(error)}") from error
    return Head(metadata, places, (facts.st_size, facts.st_mtime_ns))


def _read(cursor: Cursor) -> tuple[dict[str, Any], dict[str, Place]]:
    _check_beginning(cursor)
    tensors = cursor.count("tensors", 8 + 4 + 8 + 4 + 8)
    metadata: dict[str, Any] = {}
    for _ in range(cursor.count("values", 8 + 4 + 1)):
        key = cursor.text("a key")
        if key in metadata:
            raise BundleError(f"{cursor.path} has the key {short_repr(key)} twice; it is damaged")
        metadata[key] = cursor.value(key)
    alignment = _alignment(cursor.path, metadata)
    places: dict[str, Place] = {}
    for _ in range(tensors):
        name = cursor.text("the name of a tensor")
        if name in places:
            raise BundleError(
                f"{cursor.path} has the tensor {short_repr(name)} twice; it is damaged"
            )
        places[name] = _place(cursor, f"tensor {short_repr(name)}", alignment)
    data = -(-cursor.at // alignment) * alignment
    places = {name: place._replace(start=place.start + data) for name, place in places.items()}
    _check_places(cursor, places)
    return metadata, places


def _check_beginning(cursor: Cursor) -> None:
    magic = cursor.take(min(len(MAGIC), cursor.size), "its first bytes")
    if magic != MAGIC:
        raise BundleError(f"{cursor.path} is no GGUF file: it begins with {magic!r}, not {MAGIC!r}")
    version = cursor.u32("its version")
    if version.to_bytes(4, "little")[:3] == b"\0\0\0":
        raise BundleError(f"{cursor.path} is a big-endian GGUF file; only little-endian is read")
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise BundleError(
            f"{cursor.path} is GGUF version {version}, read are {known}; convert the model again"
        )


def _alignment(path: Path, metadata: dict[str, Any]) -> int:
    alignment = metadata.get(ALIGNMENT, 32)
    if type(alignment) is not int or alignment.bit_count() != 1 or not 8 <= alignment <= 2**20:
        raise BundleError(
            f"{path} aligns tensors to {short_repr(str(alignment))} bytes; expected a power of two "
            f"from 8 to {2**20}"
        )
    return alignment


def _place(cursor: Cursor, what: str, alignment: int) -> Place:
    axes = cursor.u32(what)
    if not 1 <= axes <= MOST_AXES:
        raise BundleError(f"{cursor.path}: {what} has {axes} axes; expected 1 to {MOST_AXES}")
    shape = tuple(cursor.u64(what) for _ in range(axes))[::-1]
    number = cursor.u32(what)
    if number not in KINDS:
        raise BundleError(f"{cursor.path}: {what} has kind {number}, which is not known here")
    kind = KINDS[number]
    if 0 in shape or shape[-1] % kind.numbers:
        raise BundleError(
            f"{cursor.path}: {what} has shape {shape}; no axis may be empty and a row of "
            f"{kind.name} is a multiple of {kind.numbers}"
        )
    offset = cursor.u64(what)
    if offset % alignment:
        raise BundleError(
            f"{cursor.path}: {what} lies at byte {offset} of the data, which is no multiple of "
            f"the alignment {alignment}"
        )
    return Place(kind, shape, offset, prod(shape) // kind.numbers * kind.bytes)


def _check_places(cursor: Cursor, places: dict[str, Place]) -> None:
    for name, place in places.items():
        if place.start + place.bytes > cursor.size:
            raise BundleError(
                f"{cursor.path}: tensor {short_repr(name)} of shape {place.shape} would end at "
                "byte "
                f"{place.start + place.bytes}, but the file has {cursor.size}; it is cut off or "
                "damaged"
            )
    for (one, first), (other, second) in pairwise(sorted(places.items(), key=lambda it: it[1][2])):
        if first.start + first.bytes > second.start:
            raise BundleError(
                f"{cursor.path}: tensors {short_repr(one)} and {short_repr(other)} lie over each "
                "other; "
                "it is damaged"
            )
