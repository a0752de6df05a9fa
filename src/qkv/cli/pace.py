"""How far a long work is, and how fast it goes, on standard error."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from qkv.cli.progress import say

EVERY, EVERY_LINE = 0.2, 10.0  # seconds between two signs of life on a terminal, and elsewhere


class Pace:
    """Tells how many texts are done and how fast, while it takes long."""

    def __init__(self, total: int | None) -> None:
        self.total, self.done = total, 0
        self.began: tuple[float, int] | None = None
        self.told, self.terminal = 0.0, sys.stderr.isatty()

    def __call__(self, done: int) -> None:
        """So many are done; those of the first call were done before."""
        now, self.done = time.perf_counter(), done
        if self.began is None:
            self.began, self.told = (now, done), now
        if now - self.told < (EVERY if self.terminal else EVERY_LINE):
            return
        self.told = now
        started, before = self.began
        of = "" if self.total is None else f" of {self.total:,}"
        line = f"{done:,}{of} texts  {(done - before) / (now - started):,.0f} texts/s"
        if self.terminal:
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
        else:
            say(line)

    def end(self) -> None:
        if self.terminal:
            sys.stderr.write("\r\033[K")


def known_total(texts: Sequence[str] | None, file: Path | None) -> int | None:
    """How many texts there are, if that can be known before they are read."""
    if texts:
        return len(texts)
    if file is None or not file.is_file():  # a pipe can be read but once
        return None
    lines, last = 0, b"\n"
    try:
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                lines, last = lines + block.count(b"\n"), block[-1:]
    except OSError:  # told when it is read
        return None
    return lines + (last != b"\n")
