"""Reading the files of a tokenizer; every problem is a DataError that names the file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qkv import files
from qkv.errors import DataError
from qkv.files import MAX_CONFIG_BYTES, MAX_VOCAB_BYTES, one_line


def read_bytes(path: Path) -> bytes:
    """The content of a vocabulary file."""
    return files.read_bytes(path, DataError, MAX_VOCAB_BYTES)


def read_text(path: Path, follow_symlinks: bool = False) -> str:
    """The text of a vocabulary file; `follow_symlinks` is for a path that the user gave."""
    return files.read_text(path, DataError, MAX_VOCAB_BYTES, follow_symlinks)


def read_json(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The object in a JSON file."""
    return files.read_json(path, DataError, max_bytes)


@contextmanager
def tokenizer_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn exceptions of the tokenizers library into a one-line DataError that names the file.

    The library raises bare exceptions and on some files panics, which is not an `Exception`.
    """
    try:
        yield
    except DataError as error:
        directory = str(Path(path).parent / "_")[:-1]
        if directory in str(error):  # it names a file of the same directory already
            raise
        raise DataError(f"cannot use {path} as a tokenizer: {error}") from error
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"
        if not is_panic and type(error) not in (Exception, ValueError, TypeError, OverflowError):
            raise
        raise DataError(f"cannot use {path} as a tokenizer: {one_line(error)}") from error
