"""A file of vectors while it grows: behind every portion it can be cut off and gone on with."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from qkv.engine.embed.embedder import Vectors
from qkv.errors import DataError


class Part(ABC):
    """An unfinished file beside its target; `size` is how much of it is good, None for a new one.

    Adding a format is adding a file and a line in `FORMATS`.
    """

    ending: ClassVar[str]

    def __init__(self, path: Path, width: int, size: int | None) -> None:
        self.path, self.width = path, width
        self.file = path.open("w+b" if size is None else "r+b")
        if size is None:
            self.file.write(self.head(0))
            return
        there = self.file.seek(0, os.SEEK_END)
        if there < size:
            self.file.close()
            raise DataError(
                f"{path} has {there:,} bytes but its journal speaks of {size:,}; it is damaged, "
                "pass --force to begin again"
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
