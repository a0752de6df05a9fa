"""A SentencePiece model file (*.model, *.spm): its pieces, scores and normalizer.

The file is a protocol buffer of few fields, read here directly: nothing has to be installed, and
a damaged file can do no more than be refused.
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qkv.errors import DataError
from qkv.text.tokenizer_files import read_bytes

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
SPACE = "▁"  # how a piece writes it
Value = int | bytes


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    type: int


@dataclass(frozen=True)
class SentencePieceModel:
    path: Path
    pieces: tuple[Piece, ...]
    type: int  # UNIGRAM or BPE
    byte_fallback: bool
    charsmap: bytes | None
    adds_space: bool  # before the first word
    tidies_space: bool  # at both ends, and several in a row
    unknown: int
    names: dict[str, str]  # unk_token, bos_token, eos_token, if the model has them


def read_model(path: Path) -> SentencePieceModel:
    try:
        model = _model(path, read_bytes(path))
    except (IndexError, ValueError, struct.error, TypeError) as error:
        raise DataError(f"{path} is not a SentencePiece model: {error}") from error
    if not model.pieces or not 0 <= model.unknown < len(model.pieces):
        raise DataError(f"{path} is not a SentencePiece model: it has no pieces, or no unknown one")
    if model.type not in (UNIGRAM, BPE):
        raise DataError(f"{path}: only unigram and BPE models are read, not type {model.type}")
    return model


def _model(path: Path, data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for field, value in _fields(data):
        if field == 1:
            pieces.append(_piece(_bytes(value)))
        elif field in (2, 3):
            (trainer if field == 2 else normalizer).update(_fields(_bytes(value)))
    names = {}
    for role, id_field, id, piece_field, piece in (
        ("unk_token", 40, 0, 45, "<unk>"),
        ("bos_token", 41, 1, 46, "<s>"),
        ("eos_token", 42, 2, 47, "</s>"),
    ):
        if _signed(trainer.get(id_field, id)) >= 0:
            names[role] = _bytes(trainer.get(piece_field, piece.encode())).decode() or piece
    return SentencePieceModel(
        path,
        tuple(pieces),
        type=int(trainer.get(3, UNIGRAM)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=_bytes(normalizer.get(2, b"")) or None,
        adds_space=bool(normalizer.get(3, 1)),
        tidies_space=bool(normalizer.get(4, 1)),
        unknown=_signed(trainer.get(40, 0)),
        names=names,
    )


def _piece(data: bytes) -> Piece:
    found = dict(_fields(data))
    (score,) = struct.unpack("<f", _bytes(found.get(2, bytes(4))))
    return Piece(_bytes(found.get(1, b"")).decode(), score, int(found.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The numbered fields of a message: whole numbers, or bytes for all that is no number."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            number, at = _number(data, at)
            yield field, number
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"byte {at} begins no field")
        length, at = (8 if wire == 1 else 4, at) if wire != 2 else _number(data, at)
        if at + length > len(data):
            raise ValueError("it ends in the middle of a field")
        yield field, data[at : at + length]
        at += length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError(f"byte {at} ends no number")


def _signed(value: Value) -> int:
    number = int(value)
    return number - 2**64 if number >= 2**63 else number


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where text should be")
    return value
