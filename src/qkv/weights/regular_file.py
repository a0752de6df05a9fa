"""An ordinary file held open: nothing that could hang, and nothing that changes unnoticed."""

import mmap
import os
import platform
import sys
import weakref
from pathlib import Path

from qkv.errors import BundleError
from qkv.files import open_ordinary, reason

# Without it a file larger than the memory could not be mapped, because all of it might be written
# to. Python knows the name only since 3.13; the number is that of the machines listed.
_USUAL = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
_NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000 if _USUAL else 0)


class RegularFile:
    """A file that stays the one that was opened, even when its name is given to another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_ordinary(path)
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        found = os.fstat(self._descriptor)
        self.size = found.st_size
        self._changed = found.st_mtime_ns
        self._map: mmap.mmap | None = None

    def read(self, start: int, length: int) -> bytearray:
        """That many bytes from there on."""
        room = bytearray(length)
        self.fill(memoryview(room), start)
        return room

    def fill(self, room: memoryview, start: int) -> None:
        """Put the bytes from there on into `room`, all of it."""
        self._check_open()
        done = 0
        while done < len(room):
            try:
                got = os.preadv(self._descriptor, [room[done:]], start + done)
            except OSError as error:
                raise BundleError(f"cannot read {self.path}: {reason(error)}") from error
            if got == 0:
                raise BundleError(
                    f"{self.path} ends at byte {start + done}, but had {self.size} when it was "
                    "opened; it was cut off meanwhile, so get it again"
                )
            done += got
        self._check_same()

    def mapped(self) -> mmap.mmap:
        """The file as memory of which every page is read when it is first used.

        What is written there stays in this process. Nobody may close it: tensors made from it do
        not say that they still need it, and it goes away by itself with the last of them.
        """
        self._check_open()
        self._check_same()
        if self._map is None:
            flags, both = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            try:
                self._map = mmap.mmap(self._descriptor, self.size, flags=flags, prot=both)
            except (OSError, ValueError) as error:
                raise BundleError(
                    f"cannot map {self.path} into memory: {reason(error)}; read it instead"
                ) from error
        return self._map

    def close(self) -> None:
        """Let go of the file; what was mapped stays as long as it is used."""
        self._closing()
        self._map = None

    def _check_open(self) -> None:
        if not self._closing.alive:  # its number may be another file's by now
            raise BundleError(f"{self.path} has been closed; open it again")

    def _check_same(self) -> None:
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.size, self._changed):
            raise BundleError(
                f"{self.path} was written to after it was opened ({self.size} bytes then, "
                f"{now.st_size} now); open it again once it is whole"
            )
