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
from importlib import import_module
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from qkv.engine.embed.embedder import Embeddings, Progress, Vectors, text_batches
from qkv.errors import DataError, UsageError
from qkv.files import atomic_write, read_json, write_error_message


@dataclass(frozen=True)
class Journal:
    """rows and bytes of the part file, the hash of their texts, and what they were made with."""

    rows: int
    bytes: int
    long: int
    texts: str
    options: Mapping[str, Any]
    finished: bool = False

    def write(self, path: Path) -> None:
        atomic_write(path, json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, path: Path) -> "Journal | None":
        """None if there is none."""
        if not path.exists():
            return None
        damaged = DataError(f"{path} is damaged; pass force=True to start over")
        try:
            found = cls(**read_json(path, DataError))
        except TypeError:
            raise damaged from None
        numbers = (found.rows, found.bytes, found.long)
        if not isinstance(found.options, dict) or any(type(n) is not int or n < 0 for n in numbers):
            raise damaged
        return found

    def expect(self, options: Mapping[str, Any], name: Path) -> None:
        """Refuses to go on with another model or other options.

        Where long texts were an error there was none so far, so that may be changed.
        """
        if self.options.get("long") == "error":
            free = {"long"}
        else:
            free = set[str]()
        for option in sorted({*self.options, *options} - free):
            before = self.options.get(option)
            now = options.get(option)
            if before != now:
                raise DataError(
                    f"{name} was begun with {option} {before}, not {now}; go on with that, or "
                    "pass force=True to start over"
                )


class Fingerprint:
    """The hash of all texts so far, wherever one ends and the next begins."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            content = text.encode("utf-8", "surrogatepass")
            self._digest.update(len(content).to_bytes(8, "big") + content)

    def __str__(self) -> str:
        return self._digest.hexdigest()


class PartialFile(ABC):
    """An unfinished file beside its target; `size` is how much of it is good, None for a new one.

    Adding a format is adding a file and a line in `FORMATS`.
    """

    ending: ClassVar[str]

    def __init__(self, path: Path, width: int, size: int | None) -> None:
        self.path = path
        self.width = width
        self.file = path.open("w+b" if size is None else "r+b")
        if size is None:
            self.file.write(self.head(0))
            return
        there = self.file.seek(0, os.SEEK_END)
        if there < size:
            self.file.close()
            raise DataError(
                f"{path} has {there:,} bytes but its journal speaks of {size:,}; it is damaged, "
                "pass force=True to start over"
            )
        self.file.truncate(size)
        self.file.seek(size)

    @abstractmethod
    def head(self, rows: int) -> bytes:
        """What such a file begins with, always of the same size."""

    @abstractmethod
    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Write these rows behind the others."""

    @abstractmethod
    def finish(self, rows: int, target: Path) -> None:
        """Put the whole file in its place, and this one away."""

    def flush(self) -> int:
        """The size, once all of it is safely on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        with suppress(OSError):  # what matters was flushed, or its error told
            self.file.close()


def to_disk(path: Path) -> None:
    """Until this returns, the operating system may still hold the file in memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Npy(PartialFile):
    """The rows behind each other; numpy keeps room in its header for the largest number of them."""

    ending = ".npy"

    def head(self, rows: int) -> bytes:
        made = BytesIO()
        facts = {"descr": "<f4", "fortran_order": False, "shape": (rows, self.width)}
        np.lib.format.write_array_header_1_0(made, facts)
        return made.getvalue()

    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())

    def finish(self, rows: int, target: Path) -> None:
        self.file.seek(0)
        self.file.write(self.head(rows))
        self.flush()
        self.close()
        self.path.replace(target)


END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream of Arrow batches


class Parquet(PartialFile):
    """Two columns, text and vector (a list of D numbers of 32 bits); a portion is a row group."""

    ending = ".parquet"

    def __init__(self, path: Path, width: int, size: int | None) -> None:
        self.arrow = expect_pyarrow()
        vector = self.arrow.list_(self.arrow.float32(), width)
        self.schema = self.arrow.schema([("text", self.arrow.string()), ("vector", vector)])
        super().__init__(path, width, size)

    def head(self, rows: int) -> bytes:
        return bytes(self.schema.serialize())

    def add(self, texts: Sequence[str], vectors: Vectors) -> None:
        flat = self.arrow.array(vectors.reshape(-1), self.arrow.float32())
        lists = self.arrow.FixedSizeListArray.from_arrays(flat, self.width)
        columns = [self.arrow.array(texts, self.arrow.string()), lists]
        batch = self.arrow.record_batch(columns, schema=self.schema)
        self.file.write(batch.serialize())

    def finish(self, rows: int, target: Path) -> None:
        self.file.write(END)
        self.file.seek(0)
        whole = self.path.with_name(self.path.name + ".whole")
        with (
            self.arrow.ipc.open_stream(self.file) as stream,
            self.arrow.parquet.ParquetWriter(whole, self.schema) as writer,
        ):
            for batch in stream:
                writer.write_batch(batch)
        self.close()
        to_disk(whole)
        whole.replace(target)
        self.path.unlink()


def expect_pyarrow() -> Any:
    """The library, or a DataError that says how to get it."""
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            "writing a .parquet file needs pyarrow; get it with: pip install pyarrow"
        ) from None
    return import_module("pyarrow")


FORMATS: dict[str, type[PartialFile]] = {kind.ending: kind for kind in (Npy, Parquet)}

Embed = Callable[[Sequence[str], int], Embeddings]  # texts, and the number of the first of them


@dataclass(frozen=True)
class VectorFile:
    """How many vectors are in the file, and of how many texts that were longer than is read."""

    rows: int
    long_texts: int


def embed_to_file(
    embed: Embed,
    texts: Iterable[str],
    path: Path,
    options: Mapping[str, Any],
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> VectorFile:
    """Write a row for each text to a .npy or .parquet file, which is there once it is whole.

    `options` is what decides the vectors: the hash of the model, and how it is asked. With
    `resume` an interrupted file is gone on with, if they are the same and the texts too; the bytes
    are those of a run that was never interrupted, where one thread computes.
    """
    check_vector_path(path, resume=resume, force=force)
    tell = progress or (lambda done: None)
    stream = iter(texts)
    fingerprint = Fingerprint()
    if resume:
        journal = Journal.read(journal_path(path))
    else:
        journal = None
    if journal is not None:
        journal.expect(options, path)
        _skip_done(stream, journal, fingerprint, path)
        if _is_complete(path, journal):
            if next(stream, None) is not None:
                raise DataError(
                    f"{path} is finished with {journal.rows:,} rows, but there are more texts now; "
                    f"pass force=True to start over"
                )
            journal_path(path).unlink()
            return VectorFile(journal.rows, journal.long)
    rows, long = (0, 0) if journal is None else (journal.rows, journal.long)
    with _open_partial(path, embed((), 1).vectors.shape[1], journal) as part:
        tell(rows)
        for portion in text_batches(stream):
            found = embed(portion, rows + 1)
            fingerprint.add(portion)
            rows = rows + len(portion)
            long = long + found.long_texts
            with _write_errors(path):
                part.add(portion, found.vectors)
                size = part.flush()
                Journal(rows, size, long, str(fingerprint), options).write(journal_path(path))
            tell(rows)
        with _write_errors(path):
            size = part.flush()
            Journal(rows, size, long, str(fingerprint), options, True).write(journal_path(path))
            part.finish(rows, path)
            journal_path(path).unlink()
    return VectorFile(rows, long)


def check_vector_path(path: Path, *, resume: bool = False, force: bool = False) -> None:
    """Refuses a file that could not be written, or would replace what nobody said to replace."""
    if resume and force:
        raise UsageError("resume=True and force=True exclude each other; give one of them")
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} must end in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if path.suffix.lower() == Parquet.ending:
        expect_pyarrow()
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    begun = journal_path(path).exists()
    if begun and not (resume or force):
        raise UsageError(
            f"{path} is unfinished; pass resume=True to continue, or force=True to start over"
        )
    if path.exists() and not begun and not force:
        raise UsageError(f"{path} exists; pass force=True to overwrite it")


def partial_path(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def journal_path(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def _is_complete(path: Path, journal: Journal) -> bool:
    """Whether it was stopped between its last two deeds: the file is there, and its journal."""
    if partial_path(path).exists():
        return False
    if journal.finished and path.exists():
        return True
    raise DataError(f"{partial_path(path)} is missing; pass force=True to start over")


@contextmanager
def _open_partial(path: Path, width: int, journal: Journal | None) -> Iterator[PartialFile]:
    with _write_errors(path):
        if journal is None:
            journal_path(path).unlink(missing_ok=True)
        size = None if journal is None else journal.bytes
        part = FORMATS[path.suffix.lower()](partial_path(path), width, size)
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


def _skip_done(
    texts: Iterator[str], journal: Journal, fingerprint: Fingerprint, path: Path
) -> None:
    """Go to the first text that is not done, and make sure that those before are the same."""
    seen = 0
    for portion in text_batches(islice(texts, journal.rows)):
        fingerprint.add(portion)
        seen += len(portion)
    if seen < journal.rows or str(fingerprint) != journal.texts:
        raise DataError(
            f"the first {journal.rows:,} texts are not those {path} was begun with; give the same "
            "texts, or pass force=True to start over"
        )
