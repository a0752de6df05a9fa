"""Reading the head of a file that may lie: every length is held against what is left of it."""

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from qkv.errors import BundleError
from qkv.files import shown

# What a head may hold. The largest published vocabularies need a tenth of it; a file that asks
# for more is not read into memory to find out why.
MOST_BYTES = 2**28
MOST_VALUES = 2**22

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
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
TRUTH, TEXT, LIST = 7, 8, 9


class Cursor:
    """A place in an open file; what is read there is checked and then stepped over."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.path, self.size, self.at = path, size, 0
        self._file, self._values = file, 0

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
        what = f"the value of {shown(key)}"
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
        return self.text(what) if kind == TEXT else self._numbers(kind, 1, what)[0]

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
