"""Ordinary files that others wrote: nothing that hangs, leads elsewhere or fills the memory.

Within a directory a link is followed only to a file of the same directory, or, as in the cache of
Hugging Face, from `<model>/snapshots/<revision>/…` to `<model>/blobs/…`. Any other link could make
a downloaded model show a private file of this machine. A file that the user names is the user's
choice, wherever it leads: that is `anywhere`.

What is wrong is a BundleError, or the error the caller asks for.
"""

import os
import stat
from pathlib import Path

from qkv.errors import BundleError, QkvError
from qkv.files.wording import reason

SMALL = 20 * 1024 * 1024  # bytes of a file with settings
LARGEST = 200 * 1024 * 1024  # of a vocabulary
# A pipe would otherwise wait until somebody writes to it. Windows knows no such flag.
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_ordinary(path: Path, error: type[QkvError] = BundleError) -> int:
    """The number of the open file. What was opened is looked at, not the name."""
    try:
        number = os.open(path, FLAGS)
    except (OSError, ValueError) as why:  # ValueError: a zero byte in the name
        raise error(f"cannot read {path}: {reason(why)}") from why
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        kind = "a directory" if stat.S_ISDIR(mode) else "a device or a pipe"
        raise error(f"{path} is {kind}; give an ordinary file")
    return number


def within(path: Path, error: type[QkvError] = BundleError) -> Path:
    """The same path, if it does not lead out of the model's own directory."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as why:  # RuntimeError: links in a circle
        if path.is_symlink():
            raise error(f"{path} is a link that leads nowhere; get the file again") from None
        raise error(f"cannot read {path}: {reason(why)}") from why
    home = path.parent.resolve()
    caches = [folder.parent / "blobs" for folder in home.parents if folder.name == "snapshots"]
    if not any(target.is_relative_to(folder) for folder in [home, *caches[:1]]):
        raise error(
            f"{path} is a link that leads out of the model's directory, to {target}; put the file "
            "itself there"
        )
    return path


def is_there(path: Path) -> bool:
    """Also a link that leads nowhere, which is refused when read rather than passed over."""
    return path.exists() or path.is_symlink()


def read_bytes(
    path: Path,
    error: type[QkvError] = BundleError,
    largest: int = SMALL,
    anywhere: bool = False,
) -> bytes:
    """All of a file that is no larger than that many bytes."""
    number = open_ordinary(path if anywhere else within(path, error), error)
    with os.fdopen(number, "rb") as file:
        size = os.fstat(number).st_size
        if size > largest:
            raise error(f"{path} has {size:,} bytes; at most {largest:,} are read")
        try:
            content = file.read(size + 1)
        except OSError as why:
            raise error(f"cannot read {path}: {reason(why)}") from why
    if len(content) != size:
        raise error(f"{path} was changed while it was read; try again once it is whole")
    return content


def read_text(
    path: Path,
    error: type[QkvError] = BundleError,
    largest: int = SMALL,
    anywhere: bool = False,
) -> str:
    try:
        return read_bytes(path, error, largest, anywhere).decode("utf-8")
    except UnicodeDecodeError as why:
        raise error(f"{path} is not UTF-8 text (byte {why.start})") from why
