"""Documents as a stream of chunks, read from files each time and never held in memory.

A chunk boundary must not change the tokens. Words may include the space before them and a run of
white space is one word, so a document may be cut after a line break if the characters on both
sides of that line break are not white space. A document without such a position is one chunk.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from qkv.data.files import document_lines, find_files, is_table
from qkv.data.problems import BadRows
from qkv.data.table import table_rows
from qkv.errors import DataError

CHUNK_LENGTH = 1 << 13  # characters; longer chunks are encoded no faster, and fewer in parallel

T = TypeVar("T")


class DocumentChunk(NamedTuple):
    """Consecutive text of a document; the chunks of one document follow each other."""

    text: str
    document: int  # index of the document
    last: bool


def chunk_lines(
    lines: Iterable[str], document: int, length: int = CHUNK_LENGTH
) -> Iterator[DocumentChunk]:
    """The document of these lines, each with its "\\n", in chunks of `length` or somewhat more."""
    chunk: list[str] = []
    size = 0
    for line in lines:
        if size >= length and _may_cut(chunk[-1], line):
            yield DocumentChunk("".join(chunk), document, False)
            chunk = []
            size = 0
        chunk.append(line)
        size += len(line)
    yield DocumentChunk("".join(chunk), document, True)


def join_chunks(chunks: Iterable[DocumentChunk]) -> Iterator[str]:
    """The complete documents, one at a time."""
    texts: list[str] = []
    for chunk in chunks:
        texts.append(chunk.text)
        if chunk.last:
            yield "".join(texts)
            texts = []


def _may_cut(line: str, next_line: str) -> bool:
    return len(line) > 1 and not line[-2].isspace() and not next_line[0].isspace()


@dataclass(frozen=True)
class _CorpusStats:
    sha256: str
    documents: int
    characters: int
    remarks: tuple[str, ...]


class Documents:
    """The documents of files, as chunks, read from disk each time they are iterated.

    A plain text file is one document in several chunks; each row of a table is a document of one
    chunk. Only a .tsv is held in memory while it is read: whether its quotes are quoting can only
    be decided from all of its lines.
    """

    def __init__(
        self, paths: Sequence[Path], text: str | None = None, skip_bad: bool | None = None
    ) -> None:
        """Files, folders and glob patterns; `text` is the column of tables, as in `read_texts`.

        skip_bad: leave out rows of tables that cannot be used; None: it cannot be asked for.
        """
        files = find_documents(paths, text)
        stamps = {path: _stamp(path) for path in files}
        self._skip_bad = skip_bad
        self._read: Callable[[BadRows], Iterator[DocumentChunk]] = lambda bad_rows: (
            _unchanged_chunks(stamps, text, bad_rows)
        )

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Documents":
        """Documents that are in memory already."""
        documents = cls.__new__(cls)
        documents._skip_bad = None
        documents._read = lambda _: (DocumentChunk(text, i, True) for i, text in enumerate(texts))
        return documents

    def __iter__(self) -> Iterator[DocumentChunk]:
        return self._read(BadRows(self._skip_bad))

    @property
    def sha256(self) -> str:
        """A hash of the texts in their order, independent of the files they come from."""
        return self._stats.sha256

    @property
    def documents(self) -> int:
        """The number of documents."""
        return self._stats.documents

    @property
    def characters(self) -> int:
        """The number of characters in all documents."""
        return self._stats.characters

    @property
    def remarks(self) -> tuple[str, ...]:
        """A sentence about the rows that were skipped, if there are any."""
        return self._stats.remarks

    @cached_property
    def _stats(self) -> _CorpusStats:
        """One pass over everything. The length of each document is hashed after its text."""
        digest = hashlib.sha256()
        documents = 0
        characters = 0
        size = 0
        bad_rows = BadRows(self._skip_bad)
        for chunk in self._read(bad_rows):
            content = chunk.text.encode("utf-8", "surrogatepass")
            digest.update(content)
            characters += len(chunk.text)
            size += len(content)
            if chunk.last:
                digest.update(size.to_bytes(8, "big"))
                documents += 1
                size = 0
        remarks = tuple(bad_rows.remarks())
        return _CorpusStats(digest.hexdigest(), documents, characters, remarks)


def find_documents(paths: Sequence[Path], text: str | None) -> list[Path]:
    """The files these paths stand for; a DataError if `text` names a column of plain text."""
    files = find_files(paths, folders=True)
    plain = [path for path in files if not is_table(path)]
    if text is not None and plain:
        raise DataError(
            f'{plain[0]} is plain text and has no column {text}; leave text="{text}" out'
        )
    return files


def file_chunks(
    path: Path, text: str | None, document: int, bad_rows: BadRows | None = None
) -> Iterator[DocumentChunk]:
    """The documents of one file, numbered from `document`; `bad_rows` as for `table_rows`."""
    if is_table(path):
        rows = table_rows(path, {"text": text}, bad_rows)
        for number, (_, (row,)) in enumerate(rows, start=document):
            yield DocumentChunk(row, number, True)
        return
    for chunk in chunk_lines(document_lines(path), document):
        # A cut needs words on both sides, so blank text is always a single chunk.
        if chunk.last and not chunk.text.strip():
            raise DataError(f"{path} is empty; it holds no text")
        yield chunk


def _unchanged_chunks(
    stamps: dict[Path, tuple[int, int]], text: str | None, bad_rows: BadRows
) -> Iterator[DocumentChunk]:
    """The chunks of all files; a DataError if a file has changed since its stamp was taken."""
    count = 0
    for path, stamp in stamps.items():
        _check_stamp(path, stamp)
        for chunk in file_chunks(path, text, count, bad_rows):
            yield chunk
            count += chunk.last
        _check_stamp(path, stamp)
    bad_rows.check()


def _stamp(path: Path) -> tuple[int, int]:
    """Size and modification time; only a regular file can be read more than once."""
    if not path.is_file():
        raise DataError(f"{path} can be read only once; write it to a file first")
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _check_stamp(path: Path, stamp: tuple[int, int]) -> None:
    if not path.exists() or _stamp(path) != stamp:
        raise DataError(f"{path} was changed while it was in use; start again")


def split(items: Sequence[T], seed: int, fraction: float = 0.1) -> tuple[list[T], list[T]]:
    """The items for training and for validation, each in their original order.

    A pure function of its arguments. However small the fraction, each side gets an item.
    """
    validation = validation_indices(len(items), seed, fraction)
    return (
        [item for i, item in enumerate(items) if i not in validation],
        [item for i, item in enumerate(items) if i in validation],
    )


def validation_indices(count: int, seed: int, fraction: float) -> set[int]:
    """The indices of the items that `split` puts into validation."""
    check_fraction(fraction)
    if count < 2:
        examples = "1 example" if count == 1 else f"{count} examples"
        raise DataError(f"cannot split {examples} into training and validation; give at least two")
    size = min(max(round(count * fraction), 1), count - 1)
    return set(random.Random(seed).sample(range(count), size))


def check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise DataError(f"the validation fraction must be between 0 and 1, not {fraction}")


def overlap(train: Iterable[str], validation: Iterable[str]) -> list[str]:
    """The validation texts that also occur in training, each once, in order.

    Texts that differ only in white space are the same text.
    """
    first_spelling: dict[str, str] = {}
    for text in validation:
        first_spelling.setdefault(_collapse_spaces(text), text)
    duplicates = {key for text in train if (key := _collapse_spaces(text)) in first_spelling}
    return [text for key, text in first_spelling.items() if key in duplicates]


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True)
class DocumentSplit:
    """The training or the validation documents, read from disk each time they are iterated.

    `key` identifies the content: splits with equal keys have equal documents.
    """

    key: str
    read: Callable[[], Iterator[DocumentChunk]]

    def __iter__(self) -> Iterator[DocumentChunk]:
        return self.read()


def split_documents(
    documents: Documents, fraction: float, seed: int
) -> tuple[DocumentSplit, DocumentSplit]:
    """Training and validation documents, selected as in `split`; or the end of a single document.

    Of a single document the last `fraction` of its characters is validation; a side may be empty.
    """
    check_fraction(fraction)
    # The words of the key are part of the names in existing token caches.
    key = f"{documents.sha256} share {fraction} seed {seed}"
    if documents.documents == 1:
        end = documents.characters
        middle = int(end * (1.0 - fraction))
        train = partial(_character_range, documents, 0, middle)
        validation = partial(_character_range, documents, middle, end)
    else:
        indices = validation_indices(documents.documents, seed, fraction)
        train = partial(_select, documents, indices, False)
        validation = partial(_select, documents, indices, True)
    return DocumentSplit(f"{key} training", train), DocumentSplit(f"{key} held out", validation)


def _select(documents: Documents, indices: set[int], inside: bool) -> Iterator[DocumentChunk]:
    """The chunks of the documents with these indices, or of all others."""
    return (chunk for chunk in documents if (chunk.document in indices) is inside)


def _character_range(documents: Documents, start: int, stop: int) -> Iterator[DocumentChunk]:
    """The characters from `start` to before `stop` of a single document."""
    if start == stop:
        yield DocumentChunk("", 0, True)
        return
    end = 0
    for chunk in documents:
        begin = end
        end += len(chunk.text)
        if text := chunk.text[max(start - begin, 0) : stop - begin]:
            yield DocumentChunk(text, 0, end >= stop)
        if end >= stop:
            return
