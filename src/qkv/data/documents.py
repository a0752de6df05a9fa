"""The documents of files as a stream: as many as there are, and none of them kept in memory."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qkv.data.endings import is_table
from qkv.data.files import find_files
from qkv.data.lines import document_lines
from qkv.data.pieces import Piece, pieces_of
from qkv.data.table import table_rows
from qkv.errors import DataError


@dataclass(frozen=True)
class _Measured:
    sha256: str
    documents: int
    characters: int


class Documents:
    """The texts of files, read anew each time they are iterated: nothing is kept in memory.

    What comes out are pieces. A plain text file is one document, in pieces; a row of a table is
    one piece. Only a .tsv is held in memory while it is read: whether its quotes mean anything
    cannot be told before all its lines are seen.
    """

    def __init__(self, paths: Sequence[Path], text: str | None = None) -> None:
        """Files, folders and patterns; `text` is the column of tables, as in `read_texts`."""
        files = find_documents(paths, text)
        stamps = {path: _stamp(path) for path in files}
        self._read: Callable[[], Iterator[Piece]] = lambda: _unchanged_pieces(stamps, text)

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Documents":
        """Documents that are in memory already."""
        made = cls.__new__(cls)
        made._read = lambda: (Piece(text, i, True) for i, text in enumerate(texts))
        return made

    def __iter__(self) -> Iterator[Piece]:
        return self._read()

    @property
    def sha256(self) -> str:
        """The same for the same texts in the same order, wherever they come from."""
        return self._measured.sha256

    @property
    def documents(self) -> int:
        """How many there are."""
        return self._measured.documents

    @property
    def characters(self) -> int:
        """How many there are in all documents together."""
        return self._measured.characters

    @cached_property
    def _measured(self) -> _Measured:
        """One pass over everything. Each document is hashed with its length behind it."""
        digest, documents, characters, size = hashlib.sha256(), 0, 0, 0
        for piece in self:
            content = piece.text.encode("utf-8", "surrogatepass")
            digest.update(content)
            characters += len(piece.text)
            size += len(content)
            if piece.last:
                digest.update(size.to_bytes(8, "big"))
                documents, size = documents + 1, 0
        return _Measured(digest.hexdigest(), documents, characters)


def find_documents(paths: Sequence[Path], text: str | None) -> list[Path]:
    """The files meant; refused if a column is asked for and one of them has none."""
    files = find_files(paths, folders=True)
    plain = [path for path in files if not is_table(path)]
    if text is not None and plain:
        raise DataError(f"{plain[0]} is plain text and has no column {text}; leave --text out")
    return files


def file_pieces(path: Path, text: str | None, document: int) -> Iterator[Piece]:
    """The documents of one file, numbered from `document` on."""
    if is_table(path):
        for number, (_, (row,)) in enumerate(table_rows(path, {"text": text}), start=document):
            yield Piece(row, number, True)
        return
    for piece in pieces_of(document_lines(path), document):
        # A cut needs words on both sides, so blank text is always one piece.
        if piece.last and not piece.text.strip():
            raise DataError(f"{path} is empty; it holds no text")
        yield piece


def _unchanged_pieces(stamps: dict[Path, tuple[int, int]], text: str | None) -> Iterator[Piece]:
    """The pieces of all files, refused if one is no longer what it was."""
    count = 0
    for path, stamp in stamps.items():
        _check_stamp(path, stamp)
        for piece in file_pieces(path, text, count):
            yield piece
            count += piece.last
        _check_stamp(path, stamp)


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when the file does; only a regular file can be read more than once."""
    if not path.is_file():
        raise DataError(f"{path} can be read only once; write it to a file first")
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _check_stamp(path: Path, stamp: tuple[int, int]) -> None:
    if not path.exists() or _stamp(path) != stamp:
        raise DataError(f"{path} was changed while it was in use; start again")
