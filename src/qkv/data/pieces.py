"""A document in pieces short enough to be worked on one by one, and where it may be cut.

A cut must not be seen in the tokens. Words may hold the space before them and a run of white
space is one word, so the place behind a line break is safe if the characters on both sides of
that line break are no white space. A document without such a place is one piece.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

LENGTH = 1 << 13  # longer pieces are encoded no faster, and fewer at once


class Piece(NamedTuple):
    """A stretch of a document; the pieces of one come in order, without others between them."""

    text: str
    document: int  # counted from 0
    last: bool


def pieces_of(lines: Iterable[str], document: int, length: int = LENGTH) -> Iterator[Piece]:
    """The document of these lines, each with its "\\n", as pieces of `length` or somewhat more."""
    held: list[str] = []
    size = 0
    for line in lines:
        if size >= length and _may_part(held[-1], line):
            yield Piece("".join(held), document, False)
            held, size = [], 0
        held.append(line)
        size += len(line)
    yield Piece("".join(held), document, True)


def whole(pieces: Iterable[Piece]) -> Iterator[str]:
    """The documents these are the pieces of, one at a time."""
    held: list[str] = []
    for piece in pieces:
        held.append(piece.text)
        if piece.last:
            yield "".join(held)
            held = []


def _may_part(line: str, following: str) -> bool:
    return len(line) > 1 and not line[-2].isspace() and not following[0].isspace()
