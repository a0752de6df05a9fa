"""Files that others wrote: read whole, or refused in one line before they do harm.

A directory of a public model may come from anywhere. A file of it must be an ordinary one, no
larger than LARGEST, and must lie in the directory itself; the one way out is the cache of Hugging
Face, where `snapshots/<revision>/name` is a link to `blobs/<hash>`.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qkv.errors import DataError

LARGEST = 200 * 1024 * 1024
SHOWN = 240  # characters of another program's message


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a file, if it is one and lies where it says."""
    try:
        target = path.resolve(strict=True)
        _refuse_a_way_out(path, target)
        # A pipe must not block the opening; what was opened is then looked at, not the name.
        number = os.open(target, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(number, "rb") as file:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode):
                raise DataError(f"{path} is not an ordinary file")
            content = b"" if about.st_size > largest else file.read(largest + 1)
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise DataError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        ) from error
    if about.st_size > largest or len(content) > largest:
        raise DataError(f"{path} has {about.st_size:,} bytes; at most {largest:,} are read")
    return content


def read_text(path: Path, largest: int = LARGEST) -> str:
    try:
        return read_bytes(path, largest).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start})") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object a JSON file holds."""
    text = read_text(path)
    try:
        found = json.loads(text)
    except RecursionError:
        raise DataError(f"{path} is nested too deeply to be read") from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold a JSON object, not {type(found).__name__}")
    return found


def is_there(path: Path) -> bool:
    """Also a link that leads nowhere, which is refused when read rather than passed over."""
    return path.exists() or path.is_symlink()


@contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the tokenizers library cannot use is told in one line, with the file it came from.

    The library raises bare exceptions, and on some files panics, which is no `Exception`.
    """
    try:
        yield
    except DataError as error:
        if str(Path(path).parent / "_")[:-1] in str(error):  # it names a file beside this one
            raise
        raise DataError(f"cannot use {path} as a tokenizer: {error}") from error
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"
        if not panic and type(error) not in (Exception, ValueError, TypeError, OverflowError):
            raise
        raise DataError(f"cannot use {path} as a tokenizer: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """What another program said, on one line and not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _refuse_a_way_out(path: Path, target: Path) -> None:
    home = path.parent.resolve()
    in_cache = home.parent.name == "snapshots" and target.parent == home.parent.parent / "blobs"
    if not target.is_relative_to(home) and not in_cache:
        raise DataError(f"{path} is a link that leads out of its directory, to {target}")
