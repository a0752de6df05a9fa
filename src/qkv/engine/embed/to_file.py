"""Vectors of a file larger than memory, onto disk, portion by portion; what was stopped goes on.

    F.part       rows so far
    F.journal    how many of them are whole, and what they were made from
    F            only once all is done

There is never half a file under the name that was asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.engine.embed.embedder import Embedded, Progress
from qkv.engine.embed.journal import Fingerprint, Journal
from qkv.engine.embed.npy import Npy
from qkv.engine.embed.parquet import Parquet, expect_pyarrow
from qkv.engine.embed.part import Part
from qkv.engine.embed.stream import portions
from qkv.errors import DataError, UsageError
from qkv.files import unwritten

FORMATS: dict[str, type[Part]] = {kind.ending: kind for kind in (Npy, Parquet)}

Embed = Callable[[Sequence[str], int], Embedded]  # texts, and the number of the first of them


@dataclass(frozen=True)
class Written:
    """How many vectors are in the file, and of how many texts that were longer than is read."""

    rows: int
    long: int


def embed_to_file(
    embed: Embed,
    texts: Iterable[str],
    path: Path,
    options: Mapping[str, Any],
    *,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Write a row for each text to a .npy or .parquet file, which is there once it is whole.

    `options` is what decides the vectors: the hash of the model, and how it is asked. With
    `resume` an interrupted file is gone on with, if they are the same and the texts too; the bytes
    are those of a run that was never interrupted, where one thread computes.
    """
    expect_place(path, resume=resume, force=force)
    tell, stream, hashed = progress or (lambda done: None), iter(texts), Fingerprint()
    kept = Journal.read(journal_of(path)) if resume else None
    if kept is not None:
        kept.expect(options, path)
        _pass_over(stream, kept, hashed, path)
        if _is_whole(path, kept):
            if next(stream, None) is not None:
                raise DataError(
                    f"{path} is finished with {kept.rows:,} rows, but there are more texts now; "
                    f"pass --force to begin again"
                )
            journal_of(path).unlink()
            return Written(kept.rows, kept.long)
    rows, long = (0, 0) if kept is None else (kept.rows, kept.long)
    with _opened(path, embed((), 1).vectors.shape[1], kept) as part:
        tell(rows)
        for portion in portions(stream):
            found = embed(portion, rows + 1)
            hashed.add(portion)
            rows, long = rows + len(portion), long + found.long
            with _writing(path):
                part.add(portion, found.vectors)
                size = part.flush()
                Journal(rows, size, long, str(hashed), options).write(journal_of(path))
            tell(rows)
        with _writing(path):
            size = part.flush()
            Journal(rows, size, long, str(hashed), options, True).write(journal_of(path))
            part.finish(rows, path)
            journal_of(path).unlink()
    return Written(rows, long)


def expect_place(path: Path, *, resume: bool = False, force: bool = False) -> None:
    """Refuses a file that could not be written, or would replace what nobody said to replace."""
    if resume and force:
        raise UsageError("--resume and --force exclude each other; give one of them")
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path} must end in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if path.suffix.lower() == Parquet.ending:
        expect_pyarrow()
    if not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} to write {path.name} to; make it first")
    begun = journal_of(path).exists()
    if begun and not (resume or force):
        raise UsageError(
            f"{path} was begun and not finished; pass --resume to go on, or --force to begin again"
        )
    if path.exists() and not begun and not force:
        raise UsageError(f"{path} exists; pass --force to replace it")


def part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def journal_of(path: Path) -> Path:
    return path.with_name(path.name + ".journal")


def _is_whole(path: Path, kept: Journal) -> bool:
    """Whether it was stopped between its last two deeds: the file is there, and its journal."""
    if part_of(path).exists():
        return False
    if kept.finished and path.exists():
        return True
    raise DataError(f"{part_of(path)} is missing; pass --force to begin again")


@contextmanager
def _opened(path: Path, width: int, kept: Journal | None) -> Iterator[Part]:
    with _writing(path):
        if kept is None:
            journal_of(path).unlink(missing_ok=True)
        size = None if kept is None else kept.bytes
        part = FORMATS[path.suffix.lower()](part_of(path), width, size)
    try:
        yield part
    finally:
        part.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(unwritten(path, error)) from error


def _pass_over(texts: Iterator[str], kept: Journal, hashed: Fingerprint, path: Path) -> None:
    """Go to the first text that is not done, and make sure that those before are the same."""
    seen = 0
    for portion in portions(islice(texts, kept.rows)):
        hashed.add(portion)
        seen += len(portion)
    if seen < kept.rows or str(hashed) != kept.texts:
        raise DataError(
            f"the first {kept.rows:,} texts are not those {path} was begun with; give the same "
            "texts, or pass --force to begin again"
        )
