"""Texts as token ids: encoded once, however many they are, and never all in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.data.pieces import Piece, whole
from qkv.data.token_cache import cache_folder, entry_name, open_entry, write_entry
from qkv.errors import DataError
from qkv.text import Tokenizer

# Characters encoded at a time: enough pieces for many cores. More are no faster and need more
# memory, as the library takes more than a hundred bytes a token.
CHUNK = 1 << 17
SEAM = ("one line\n", "and one more")


@dataclass(frozen=True, eq=False)
class Encoded:
    """Many texts as token ids behind each other, in a file that is mapped, not read.

    ids (tokens of all texts); starts (texts + 1): where each begins, and the length of all.
    """

    ids: NDArray[Any]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]], vocabulary: int) -> "Encoded":
        """The same in memory, from ids below `vocabulary`."""
        ids, starts = _joined(texts, _id_type(vocabulary))
        return cls(ids, starts)

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self.starts) - 1

    def __getitem__(self, i: int) -> NDArray[Any]:
        """The ids of one text."""
        place = range(len(self))[i]
        return self.ids[self.starts[place] : self.starts[place + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many tokens each text has."""
        return np.diff(self.starts)


def encode(
    texts: Iterable[str | Piece],
    tokenizer: Tokenizer,
    key: str,
    folder: Path | None = None,
    end: int | None = None,
    start: Sequence[int] = (),
    target: bool = False,
) -> Encoded:
    """The ids of each text, or of each document whose pieces are given; kept in `folder`.

    With `end`, that token closes each of them, and those of `start` open it. `key` names the
    content: where it was encoded before by an equal tokenizer, the ids are taken from there and
    `texts` is not iterated. target: they are what is translated to, which some tokenizers cut
    in a way of its own.
    """
    folder = cache_folder() if folder is None else folder
    opened = (f" start {list(start)}" if start else "") + (" target" if target else "")
    entry = folder / entry_name(f"{key} end {end}{opened}", tokenizer)
    found = open_entry(entry)
    if found is None:
        write_entry(entry, _encoded(_pieces(texts), tokenizer, end, start, target))
        found = open_entry(entry)
        if found is None:
            raise DataError(f"{entry} was removed while it was being written; start again")
    return Encoded(*found)


def _encoded(
    pieces: Iterable[Piece],
    tokenizer: Tokenizer,
    end: int | None,
    start: Sequence[int],
    target: bool,
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Chunk by chunk: the ids, and behind how many of them a text ends."""
    if _sees_seams(tokenizer):
        pieces = _pieces(whole(pieces))
    kind, fresh = _id_type(tokenizer.size), True  # fresh: the next piece begins a text
    for chunk in _chunks(pieces):
        found = tokenizer.encode_many([piece.text for piece in chunk], target=target)
        begins = [fresh, *(piece.last for piece in chunk)]
        fresh = begins[-1]
        if start:
            found = [[*start, *a] if new else a for a, new in zip(found, begins, strict=False)]
        if end is not None:
            found = [[*a, end] if p.last else a for a, p in zip(found, chunk, strict=True)]
        ids, starts = _joined(found, kind)
        yield ids, starts[1:][[piece.last for piece in chunk]]


def _sees_seams(tokenizer: Tokenizer) -> bool:
    """Whether a document must be encoded as a whole: some public tokenizers put a space before
    every text. Those that are trained here never do.
    """
    first, second = tokenizer.encode_many(SEAM)
    return tokenizer.encode("".join(SEAM)) != first + second


def _pieces(texts: Iterable[str | Piece]) -> Iterator[Piece]:
    for i, text in enumerate(texts):
        yield text if isinstance(text, Piece) else Piece(text, i, True)


def _chunks(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    chunk: list[Piece] = []
    size = 0
    for piece in pieces:
        chunk.append(piece)
        size += len(piece.text) + 1  # many empty texts are much as well
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _joined(
    texts: Sequence[Sequence[int]], kind: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All ids behind each other, and where each text begins, with the length of all at the end."""
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.fromiter(chain.from_iterable(texts), kind, int(starts[-1])), starts


def _id_type(vocabulary: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.int32)
