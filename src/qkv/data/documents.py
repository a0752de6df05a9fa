"""The documents of files as a stream: as many as there are, and none of them kept in memory."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from qkv.data.files import document_lines, find_files, is_table
from qkv.data.table import table_rows
from qkv.errors import DataError

# FOLDED data/pieces: A document in pieces short enough to be worked on one by one, and where it
#   may be cut.
#
#   A cut must not be seen in the tokens. Words may hold the space before them and a run of
#   white
#   space is one word, so the place behind a line break is safe if the characters on both
#   sides of
#   that line break are no white space. A document without such a place is one piece.
# FOLDED data/split: Held-out examples: which ones they are, and whether training has seen them
#   after all.
# FOLDED data/part: Which part of the documents is trained on and which is held out, without
#   keeping either.

CHUNK_LENGTH = 1 << 13  # longer pieces are encoded no faster, and fewer at once


class DocumentChunk(NamedTuple):
    """A stretch of a document; the pieces of one come in order, without others between them."""

    text: str
    document: int  # counted from 0
    last: bool


def chunk_lines(
    lines: Iterable[str], document: int, length: int = CHUNK_LENGTH
) -> Iterator[DocumentChunk]:
    """The document of these lines, each with its "\\n", as pieces of `length` or somewhat more."""
    held: list[str] = []
    size = 0
    for line in lines:
        if size >= length and _may_part(held[-1], line):
            yield DocumentChunk("".join(held), document, False)
            held = []
            size = 0
        held.append(line)
        size += len(line)
    yield DocumentChunk("".join(held), document, True)


def join_chunks(pieces: Iterable[DocumentChunk]) -> Iterator[str]:
    """The documents these are the pieces of, one at a time."""
    held: list[str] = []
    for piece in pieces:
        held.append(piece.text)
        if piece.last:
            yield "".join(held)
            held = []


def _may_part(line: str, following: str) -> bool:
    return len(line) > 1 and not line[-2].isspace() and not following[0].isspace()


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
        self._read: Callable[[], Iterator[DocumentChunk]] = lambda: _unchanged_pieces(stamps, text)

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Documents":
        """Documents that are in memory already."""
        made = cls.__new__(cls)
        made._read = lambda: (DocumentChunk(text, i, True) for i, text in enumerate(texts))
        return made

    def __iter__(self) -> Iterator[DocumentChunk]:
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
        digest = hashlib.sha256()
        documents = 0
        characters = 0
        size = 0
        for piece in self:
            content = piece.text.encode("utf-8", "surrogatepass")
            digest.update(content)
            characters += len(piece.text)
            size += len(content)
            if piece.last:
                digest.update(size.to_bytes(8, "big"))
                documents = documents + 1
                size = 0
        return _Measured(digest.hexdigest(), documents, characters)


def find_documents(paths: Sequence[Path], text: str | None) -> list[Path]:
    """The files meant; refused if a column is asked for and one of them has none."""
    files = find_files(paths, folders=True)
    plain = [path for path in files if not is_table(path)]
    if text is not None and plain:
        raise DataError(
            f"{plain[0]} is plain text and has no column {text}; leave text={text!r} out"
        )
    return files


def file_chunks(path: Path, text: str | None, document: int) -> Iterator[DocumentChunk]:
    """The documents of one file, numbered from `document` on."""
    if is_table(path):
        for number, (_, (row,)) in enumerate(table_rows(path, {"text": text}), start=document):
            yield DocumentChunk(row, number, True)
        return
    for piece in chunk_lines(document_lines(path), document):
        # A cut needs words on both sides, so blank text is always one piece.
        if piece.last and not piece.text.strip():
            raise DataError(f"{path} is empty; it holds no text")
        yield piece


def _unchanged_pieces(
    stamps: dict[Path, tuple[int, int]], text: str | None
) -> Iterator[DocumentChunk]:
    """The pieces of all files, refused if one is no longer what it was."""
    count = 0
    for path, stamp in stamps.items():
        _check_stamp(path, stamp)
        for piece in file_chunks(path, text, count):
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


T = TypeVar("T")


def split(items: Sequence[T], seed: int, fraction: float = 0.1) -> tuple[list[T], list[T]]:
    """The items to train on and those held out, each in their old order.

    A pure function of its arguments. However small the share, each side gets an item.
    """
    held = validation_indices(len(items), seed, fraction)
    return (
        [item for i, item in enumerate(items) if i not in held],
        [item for i, item in enumerate(items) if i in held],
    )


def validation_indices(count: int, seed: int, fraction: float) -> set[int]:
    """Which of so many items `split` holds out, counted from 0."""
    check_fraction(fraction)
    if count < 2:
        raise DataError(
            f"cannot hold anything out of {count} example{'' if count == 1 else 's'}; "
            "two are needed at least"
        )
    held = min(max(round(count * fraction), 1), count - 1)
    return set(random.Random(seed).sample(range(count), held))


def check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise DataError(f"the share to hold out must lie between 0 and 1, not at {fraction}")


def overlap(train: Iterable[str], held_out: Iterable[str]) -> list[str]:
    """The held-out texts that also stand in training, each once, as it is first held out.

    Texts that differ only in their white space are the same text.
    """
    firsts: dict[str, str] = {}
    for text in held_out:
        firsts.setdefault(_folded(text), text)
    leaked = {folded for text in train if (folded := _folded(text)) in firsts}
    return [text for folded, text in firsts.items() if folded in leaked]


def _folded(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class DocumentSplit:
    """Some of the documents, read anew each time they are iterated.

    `key` names their content: equal keys, equal pieces joined.
    """

    key: str
    read: Callable[[], Iterator[DocumentChunk]]

    def __iter__(self) -> Iterator[DocumentChunk]:
        return self.read()


def split_documents(
    documents: Documents, fraction: float, seed: int
) -> tuple[DocumentSplit, DocumentSplit]:
    """Training and held out: whole documents, chosen as `split` does; or the end of the only one.

    Of an only document the last `share` of its characters is held out; a side may then be empty.
    """
    check_fraction(fraction)
    if documents.documents == 1:
        cut = int(documents.characters * (1.0 - fraction))
        stretches = ((0, cut), (cut, documents.characters))
        reads = [partial(_stretch, documents, *stretch) for stretch in stretches]
    else:
        held = validation_indices(documents.documents, seed, fraction)
        reads = [partial(_chosen, documents, held, wanted) for wanted in (False, True)]
    key = f"{documents.sha256} share {fraction} seed {seed}"
    return DocumentSplit(f"{key} training", reads[0]), DocumentSplit(f"{key} held out", reads[1])


def _chosen(documents: Documents, held: set[int], wanted: bool) -> Iterator[DocumentChunk]:
    return (piece for piece in documents if (piece.document in held) is wanted)


def _stretch(documents: Documents, start: int, stop: int) -> Iterator[DocumentChunk]:
    """The characters from `start` to before `stop` of the only document."""
    if start == stop:
        yield DocumentChunk("", 0, True)
        return
    end = 0
    for piece in documents:
        begin = end
        end = end + len(piece.text)
        if text := piece.text[max(start - begin, 0) : stop - begin]:
            yield DocumentChunk(text, 0, end >= stop)
        if end >= stop:
            return
