"""Files a tokenizer comes in: what is wrong with one is a DataError that names it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qkv import files
from qkv.errors import DataError
from qkv.files import MAX_CONFIG_BYTES, MAX_VOCAB_BYTES, one_line


def read_bytes(path: Path) -> bytes:
    return files.read_bytes(path, DataError, MAX_VOCAB_BYTES)


def read_text(path: Path, anywhere: bool = False) -> str:
    """`anywhere` is for a file that the user names, which may be a link."""
    return files.read_text(path, DataError, MAX_VOCAB_BYTES, anywhere)


def read_json(path: Path, largest: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The object a JSON file holds; a vocabulary may be as large as LARGEST."""
    return files.read_json(path, DataError, largest)


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
