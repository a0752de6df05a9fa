"""A SentencePiece model file (*.model, *.spm): its pieces, scores and normalizer.

The file is a protocol buffer with few fields, parsed here directly: nothing has to be installed,
and a damaged file is rejected with a clear message.
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from qkv.errors import DataError
from qkv.text.tokenizer_files import read_bytes

UNIGRAM = 1
BPE = 2
METASPACE = "▁"  # U+2581, how pieces write a space
Value = int | bytes

# The fields of the file's messages, by their numbers in sentencepiece_model.proto.
PIECES = 1
TRAINER_SPEC = 2
NORMALIZER_SPEC = 3


class PieceType(IntEnum):
    """What a piece is, by its number in sentencepiece_model.proto; GGUF files use the same."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


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
    add_dummy_prefix: bool  # a space before the first word
    remove_extra_whitespaces: bool  # at both ends, and several in a row
    unk_id: int
    role_tokens: dict[str, str]  # unk_token, bos_token, eos_token, if the model has them


def read_model(path: Path) -> SentencePieceModel:
    """The model in a file; raises DataError if it is damaged or of another type."""
    try:
        model = _parse_model(path, read_bytes(path))
    except (IndexError, ValueError, struct.error, TypeError) as error:
        raise DataError(f"{path} is not a SentencePiece model: {error}") from error
    if not model.pieces or not 0 <= model.unk_id < len(model.pieces):
        raise DataError(f"{path} is not a SentencePiece model: it has no pieces, or no unk piece")
    if model.type not in (UNIGRAM, BPE):
        raise DataError(f"{path}: only unigram and BPE models are read, not type {model.type}")
    return model


def _parse_model(path: Path, data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for field, value in _fields(data):
        if field == PIECES:
            pieces.append(_parse_piece(_bytes(value)))
        elif field == TRAINER_SPEC:
            trainer.update(_fields(_bytes(value)))
        elif field == NORMALIZER_SPEC:
            normalizer.update(_fields(_bytes(value)))
    role_tokens = {}
    for role, id_field, id, piece_field, piece in (
        ("unk_token", 40, 0, 45, "<unk>"),
        ("bos_token", 41, 1, 46, "<s>"),
        ("eos_token", 42, 2, 47, "</s>"),
    ):
        if _signed(trainer.get(id_field, id)) >= 0:
            role_tokens[role] = _bytes(trainer.get(piece_field, piece.encode())).decode() or piece
    return SentencePieceModel(
        path,
        tuple(pieces),
        type=int(trainer.get(3, UNIGRAM)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=_bytes(normalizer.get(2, b"")) or None,
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        unk_id=_signed(trainer.get(40, 0)),
        role_tokens=role_tokens,
    )


def _parse_piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    (score,) = struct.unpack("<f", _bytes(fields.get(2, bytes(4))))
    return Piece(_bytes(fields.get(1, b"")).decode(), score, int(fields.get(3, PieceType.NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The numbered fields of a message: integers for varints, else the raw bytes.

    https://protobuf.dev/programming-guides/encoding
    """
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        field = key >> 3
        wire_type = key & 7
        match wire_type:
            case 0:
                number, position = _varint(data, position)
                yield field, number
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(data, position)
            case 5:
                length = 4
            case _:
                raise ValueError(f"byte {position} begins no field")
        if position + length > len(data):
            raise ValueError("it ends in the middle of a field")
        yield field, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits per byte, the lowest first, and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:  # the eighth bit says that more follow
            return number, position
    raise ValueError(f"byte {position} ends no number")


def _signed(value: Value) -> int:
    number = int(value)  # an int64 as its two's complement
    if number >= 2**63:
        number -= 2**64
    return number


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where text should be")
    return value
