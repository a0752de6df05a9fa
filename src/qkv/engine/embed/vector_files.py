"""Embeddings of a file larger than memory, written batch by batch; an interrupted run can resume.

    F.part       the rows so far
    F.journal    how many of them are complete, and what they were made from
    F            only once everything is done

The journal is replaced atomically after its rows have been flushed, so it is correct whenever the
program stops. A .npy has a header of fixed size that is rewritten at the end. A Parquet file cannot
be continued, so rows are first written as a stream of Arrow batches and converted at the end; that
needs pyarrow, an optional dependency.
"""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from qkv.data import (
    Column,
    Record,
    Records,
    RowQueue,
    add_columns,
    arrow_arrays,
    arrow_fields,
    require_pyarrow,
    text_records,
)
from qkv.engine.embed.embedder import Embeddings, Progress, Vectors, text_batches
from qkv.errors import DataError, UsageError
from qkv.files import atomic_write, read_json, write_error_message


@dataclass(frozen=True)
class Journal:
    """Rows and bytes of the part file, the hash of their texts and the options they depend on.

    `long` counts the texts that exceeded the context length.
    """

    rows: int
    bytes: int
    long: int
    texts: str
    options: Mapping[str, Any]
    finished: bool = False

    def write(self, path: Path) -> None:
        """Replaces the file atomically, so a reader never sees half a journal."""
        atomic_write(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> "Journal | None":
        """The journal in the file, None if there is no file; raises DataError if it is damaged."""
        if not path.exists():
            return None
        damaged = DataError(f"{path} is damaged; pass force=True to start over")
        try:
            journal = cls(**read_json(path, DataError))
        except TypeError:
            raise damaged from None
        if not isinstance(journal.options, dict):
            raise damaged
        for count in (journal.rows, journal.bytes, journal.long):
            # type() and not isinstance: JSON's true would pass as the integer 1.
            if type(count) is not int or count < 0:
                raise damaged
        return journal

    def expect(self, options: Mapping[str, Any], name: Path) -> None:
        """Raises DataError if the model or an option differs from those of the rows so far."""
        names = {*self.options, *options}
        # With long="error" no row so far comes from a long text, so this option may change.
        if self.options.get("long") == "error":
            names.discard("long")
        for option in sorted(names):
            previous = self.options.get(option)
            current = options.get(option)
            if previous != current:
                raise DataError(
                    f"{name} was begun with {option} {previous}, not {current}; keep that, or "
                    "pass force=True to start over"
                )


class Fingerprint:
    """A SHA-256 of all texts so far; it does not depend on how they are split into batches."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, texts: Iterable[str]) -> None:
        """Updates the hash with each text, in order."""
        for text in texts:
            content = text.encode("utf-8", "surrogatepass")
            # The length prefix keeps ["ab", "c"] and ["a", "bc"] apart.
            self._digest.update(len(content).to_bytes(8, "big") + content)

    def __str__(self) -> str:
        return self._digest.hexdigest()


class PartialFile(ABC):
    """An unfinished file next to its target; `size` is its number of valid bytes, None if new.

    A new format is a subclass and an entry in `FORMATS`.
    """

    ending: ClassVar[str]

    def __init__(self, path: Path, width: int, size: int | None, columns: Sequence[Column]) -> None:
        """columns: those of the rows the vectors belong to."""
        self.path = path
        self.width = width
        if size is None:
            self.file = path.open("w+b")
            self.file.write(self.head(0))
            return
        self.file = path.open("r+b")
        actual_size = self.file.seek(0, os.SEEK_END)
        if actual_size < size:
            self.file.close()
            raise DataError(
                f"{path} has {actual_size:,} bytes but its journal records {size:,}; it is "
                "damaged, pass force=True to start over"
            )
        # Bytes after the last journal entry belong to a batch that was not completed.
        self.file.truncate(size)
        self.file.seek(size)

    @abstractmethod
    def head(self, rows: int) -> bytes:
        """The header of a file with so many rows; its size does not depend on `rows`."""

    @abstractmethod
    def add(self, rows: Sequence[Record], vectors: Vectors) -> None:
        """Appends each row with its vector."""

    @abstractmethod
    def finish(self, rows: int, target: Path) -> None:
        """Moves the complete file to `target` and removes this one."""

    def flush(self) -> int:
        """Syncs the file to disk and returns its size in bytes."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        """Closes the file; errors are ignored, since `flush` has already raised any that matter."""
        with suppress(OSError):
            self.file.close()


def to_disk(path: Path) -> None:
    """Syncs a closed file; until then its bytes may only be in the operating system's cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Npy(PartialFile):
    """Float32 rows one after another; numpy pads the header so that any row count fits."""

    ending = ".npy"

    def head(self, rows: int) -> bytes:
        buffer = BytesIO()
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, self.width)}
        np.lib.format.write_array_header_1_0(buffer, header)
        return buffer.getvalue()

    def add(self, rows: Sequence[Record], vectors: Vectors) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())

    def finish(self, rows: int, target: Path) -> None:
        self.file.seek(0)
        self.file.write(self.head(rows))
        self.flush()
        self.close()
        self.path.replace(target)


END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # end-of-stream marker of the Arrow IPC format


class Parquet(PartialFile):
    """The columns of the rows and a vector (D float32 values); each batch is a row group."""

    ending = ".parquet"

    def __init__(self, path: Path, width: int, size: int | None, columns: Sequence[Column]) -> None:
        self.arrow = require_pyarrow("writing a .parquet file")
        self.columns = columns
        vector = Column("vector", arrow_type=self.arrow.list_(self.arrow.float32(), width))
        everything, _ = add_columns(columns, [vector])
        self.schema = self.arrow.schema(arrow_fields(everything))
        super().__init__(path, width, size, columns)

    def head(self, rows: int) -> bytes:
        return bytes(self.schema.serialize())

    def add(self, rows: Sequence[Record], vectors: Vectors) -> None:
        flat = self.arrow.array(vectors.reshape(-1), self.arrow.float32())
        lists = self.arrow.FixedSizeListArray.from_arrays(flat, self.width)
        arrays = [*arrow_arrays(self.columns, rows), lists]
        batch = self.arrow.record_batch(arrays, schema=self.schema)
        self.file.write(batch.serialize())

    def finish(self, rows: int, target: Path) -> None:
        self.file.write(END)
        self.file.seek(0)
        parquet_path = self.path.with_name(self.path.name + ".whole")
        with (
            self.arrow.ipc.open_stream(self.file) as stream,
            self.arrow.parquet.ParquetWriter(parquet_path, self.schema) as writer,
        ):
            for batch in stream:
                writer.write_batch(batch)
        self.close()
        to_disk(parquet_path)
        parquet_path.replace(target)
        self.path.unlink()


FORMATS: dict[str, type[PartialFile]] = {kind.ending: kind for kind in (Npy, Parquet)}

Embed = Callable[[Sequence[str], int], Embeddings]  # texts, and the 1-based number of the first


@dataclass(frozen=True)
class VectorFile:
    """How many vectors are in the file, and of how many texts that were longer than is read."""

    rows: int
    long_texts: int


def embed_to_file(
    embed: Embed,
    texts: Iterable[str] | Records,
    path: Path,
    options: Mapping[str, Any],
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> VectorFile:
    """Write a row for each text to a .npy or .parquet file, which is there once it is whole.

    The rows of a .parquet hold the text and its vector or, of a table, all columns and the vector.
    `options` holds everything the vectors depend on: the hash of the model and its settings.
    `resume` continues an interrupted file if the options and texts are the same; with one thread,
    its bytes equal those of an uninterrupted run.
    """
    check_vector_path(path, resume=resume, force=force)
    report = progress or (lambda rows: None)
    records = texts if isinstance(texts, Records) else text_records(texts)
    options = {**options, **_table_options(path, records)}
    queue = RowQueue(records)
    stream = queue.texts()
    fingerprint = Fingerprint()
    journal: Journal | None = None
    if resume:
        journal = Journal.read(journal_path(path))
    rows = 0
    long_texts = 0
    if journal is not None:
        journal.expect(options, path)
        _skip_done(queue, stream, journal, fingerprint, path)
        if _is_complete(path, journal):
            _expect_no_more(stream, journal, path)
            journal_path(path).unlink()
            return VectorFile(journal.rows, journal.long)
        rows = journal.rows
        long_texts = journal.long
    width = embed((), 1).vectors.shape[1]
    with _open_partial(path, width, journal, records.columns) as part:
        report(rows)
        for batch in text_batches(stream):
            embeddings = embed(batch, rows + 1)
            fingerprint.add(batch)
            rows += len(batch)
            long_texts += embeddings.long_texts
            with _write_errors(path):
                part.add(queue.take(len(batch)), embeddings.vectors)
                size = part.flush()
                journal = Journal(rows, size, long_texts, str(fingerprint), options)
                journal.write(journal_path(path))
            report(rows)
        with _write_errors(path):
            size = part.flush()
            journal = Journal(rows, size, long_texts, str(fingerprint), options, finished=True)
            journal.write(journal_path(path))
            part.finish(rows, path)
            journal_path(path).unlink()
    return VectorFile(rows, long_texts)


def check_vector_path(path: Path, *, resume: bool = False, force: bool = False) -> None:
    """Refuses a file that could not be written, or would replace what nobody said to replace."""
    if resume and force:
        raise UsageError("resume=True and force=True exclude each other; give one of them")
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} must end in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if path.suffix.lower() == Parquet.ending:
        require_pyarrow("writing a .parquet file")
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    unfinished = journal_path(path).exists()
    if unfinished and not (resume or force):
        raise UsageError(
            f"{path} is unfinished; pass resume=True to continue, or force=True to start over"
        )
    if path.exists() and not unfinished and not force:
        raise UsageError(f"{path} exists; pass force=True to overwrite it")


def partial_path(path: Path) -> Path:
    """F.part, the rows so far."""
    return path.with_name(path.name + ".part")


def journal_path(path: Path) -> Path:
    """F.journal, which exists as long as F is unfinished."""
    return path.with_name(path.name + ".journal")


def _is_complete(path: Path, journal: Journal) -> bool:
    """Whether the run stopped after moving the file to `path` but before removing its journal."""
    if partial_path(path).exists():
        return False
    if journal.finished and path.exists():
        return True
    raise DataError(f"{partial_path(path)} is missing; pass force=True to start over")


def _expect_no_more(texts: Iterator[str], journal: Journal, path: Path) -> None:
    """Raises DataError if there are texts after those of a complete file."""
    if next(texts, None) is not None:
        raise DataError(
            f"{path} is finished with {journal.rows:,} rows, but there are more texts now; "
            "pass force=True to start over"
        )


@contextmanager
def _open_partial(
    path: Path, width: int, journal: Journal | None, columns: Sequence[Column]
) -> Iterator[PartialFile]:
    with _write_errors(path):
        if journal is None:
            journal_path(path).unlink(missing_ok=True)
            size = None
        else:
            size = journal.bytes
        part = FORMATS[path.suffix.lower()](partial_path(path), width, size, columns)
    try:
        yield part
    finally:
        part.close()


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(write_error_message(path, error)) from error


def _table_options(path: Path, records: Records) -> dict[str, Any]:
    """The columns of a table, which a .parquet must not change half way; nothing for texts."""
    if path.suffix.lower() != Parquet.ending or records.columns == text_records(()).columns:
        return {}
    return {"columns": [f"{name} {dtype}" for name, dtype in arrow_fields(records.columns)]}


def _skip_done(
    queue: RowQueue, texts: Iterator[str], journal: Journal, fingerprint: Fingerprint, path: Path
) -> None:
    """Advances `texts` past the completed rows; raises DataError if those texts have changed."""
    rows = 0
    for batch in text_batches(islice(texts, journal.rows)):
        fingerprint.add(batch)
        queue.take(len(batch))
        rows += len(batch)
    if rows < journal.rows or str(fingerprint) != journal.texts:
        raise DataError(
            f"the first {journal.rows:,} texts are not those {path} was begun with; give the same "
            "texts, or pass force=True to start over"
        )
