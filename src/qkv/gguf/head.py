"""The head of a GGUF file: what the model is, and where each tensor lies.

    "GGUF" · version · tensors · values │ key, type, value … │ name, shape, kind, offset … │ data

A head that is accepted is consistent: no key or tensor twice, and every tensor aligned, inside
the file and clear of all others.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import os
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from qkv.errors import BundleError
from qkv.files import open_ordinary, reason, shown
from qkv.gguf.blocks import KINDS, Kind
from qkv.gguf.cursor import Cursor

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
        with os.fdopen(open_ordinary(path), "rb") as file:
            facts = os.fstat(file.fileno())
            cursor = Cursor(file, path, facts.st_size)
            metadata, places = _read(cursor)
    except OSError as error:
        raise BundleError(f"cannot read {path}: {reason(error)}") from error
    return Head(metadata, places, (facts.st_size, facts.st_mtime_ns))


def _read(cursor: Cursor) -> tuple[dict[str, Any], dict[str, Place]]:
    _check_beginning(cursor)
    tensors = cursor.count("tensors", 8 + 4 + 8 + 4 + 8)
    metadata: dict[str, Any] = {}
    for _ in range(cursor.count("values", 8 + 4 + 1)):
        key = cursor.text("a key")
        if key in metadata:
            raise BundleError(f"{cursor.path} has the key {shown(key)} twice; it is damaged")
        metadata[key] = cursor.value(key)
    alignment = _alignment(cursor.path, metadata)
    places: dict[str, Place] = {}
    for _ in range(tensors):
        name = cursor.text("the name of a tensor")
        if name in places:
            raise BundleError(f"{cursor.path} has the tensor {shown(name)} twice; it is damaged")
        places[name] = _place(cursor, f"tensor {shown(name)}", alignment)
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
            f"{path} aligns tensors to {shown(str(alignment))} bytes; expected a power of two "
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
                f"{cursor.path}: tensor {shown(name)} of shape {place.shape} would end at byte "
                f"{place.start + place.bytes}, but the file has {cursor.size}; it is cut off or "
                "damaged"
            )
    for (one, first), (other, second) in pairwise(sorted(places.items(), key=lambda it: it[1][2])):
        if first.start + first.bytes > second.start:
            raise BundleError(
                f"{cursor.path}: tensors {shown(one)} and {shown(other)} lie over each other; "
                "it is damaged"
            )
