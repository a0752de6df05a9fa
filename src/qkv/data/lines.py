"""The lines of a UTF-8 file, split on "\\n" and nothing else.

`str.splitlines` and text mode also break at characters that may stand inside a sentence, such as
a form feed or U+2028; files whose lines must stay parallel, or numbered, cannot afford that.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from qkv.data.files import no_such_file
from qkv.data.foreign import refuse_foreign
from qkv.errors import DataError


def document_lines(path: Path) -> Iterator[str]:
    """Each line with a "\\n" for its end; a byte order mark is left out."""
    for line in raw_lines(path):
        yield line.replace("\r\n", "\n")


def lines(path: Path) -> Iterator[str]:
    """Each line without its end."""
    for line in raw_lines(path):
        yield without_end(line)


def raw_lines(path: Path) -> Iterator[str]:
    """Each line with the end it has in the file; only a byte order mark is left out."""
    try:
        with path.open("rb") as file:  # bytes are split on \n only, and read line by line
            yield from decoded(file, str(path))
    except FileNotFoundError:
        raise no_such_file(path) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name a file in it") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def decoded(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of bytes that are called by that name where one of them is at fault."""
    try:
        for number, line in enumerate(stream, start=1):
            yield _decoded(line, name, number)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from error


def without_end(line: str) -> str:
    return line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")


def _decoded(line: bytes, name: str, number: int) -> str:
    if number == 1:
        refuse_foreign(line, name)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} line {number}: byte {error.start + 1} of the line, 0x{line[error.start]:02x}, "
            "is not UTF-8; save the file as UTF-8"
        ) from None
    return text.removeprefix("\ufeff") if number == 1 else text
