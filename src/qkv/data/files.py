"""Finding files by path, folder or pattern, and reading them as lines of UTF-8 text.

Lines end at "\\n" and nothing else: `str.splitlines` and text mode also break at characters that
may occur inside a sentence, such as a form feed or U+2028, and then the lines of parallel files
would no longer match.
"""

import glob
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from qkv.errors import DataError
from qkv.files import suggest_path

DELIMITED_SUFFIXES = (".csv", ".tsv", ".tab")

TABLE_SUFFIXES = (*DELIMITED_SUFFIXES, ".jsonl", ".parquet", ".xlsx")

# Formats that are not read, and how to convert them.
CONVERSION_HINTS = {
    **dict.fromkeys((".xls", ".ods"), "save its sheet as .xlsx or .csv"),
    ".json": "write one object per line and name it .jsonl",
    ".gz": "unpack it first, with gunzip",
    ".zip": "unpack it first",
    ".txt": "add a first line with the column names, and name it .csv or .tsv",
}


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLE_SUFFIXES


def join_or(suffixes: Iterable[str]) -> str:
    """The suffixes in a sentence: .csv, .tsv or .jsonl."""
    *others, last = suffixes
    return f"{', '.join(others)} or {last}"


def find_files(paths: Sequence[Path], folders: bool) -> list[Path]:
    """Every matching file once, in the order of the paths, sorted within a folder or pattern.

    With `folders`, a folder stands for all .txt files in it, at any depth.
    """
    if not paths:
        raise DataError("no file was given; name at least one")
    files: list[Path] = []
    for path in paths:
        files += _files(Path(path), folders)
    return list(dict.fromkeys(files))


def no_such_file(path: Path) -> DataError:
    """The error for a file that does not exist, with the most similar name next to it."""
    return DataError(f"there is no file {path}{suggest_path(path)}")


def _files(path: Path, folders: bool) -> list[Path]:
    if path.is_dir():
        if not folders:
            suffixes = join_or(TABLE_SUFFIXES)
            raise DataError(f"{path} is a folder; name files that end in {suffixes}")
        return _text_files(path)
    if path.exists():
        return [path]
    if not glob.has_magic(str(path)):
        raise no_such_file(path)
    # Path.glob does not accept a pattern that begins with / or ..
    matches = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    files = sorted(match for match in matches if not match.is_dir())
    if not files:
        raise DataError(f"no file matches {path}")
    return files


def _text_files(folder: Path) -> list[Path]:
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() == ".txt" and f.is_file())
    if not files:
        raise DataError(f"the folder {folder} holds no .txt file; name the files to read")
    return files


SIGNATURES: dict[bytes, str] = {  # first bytes of a file that is not text
    b"\xff\xfe": "UTF-16; save the file as UTF-8",
    b"\xfe\xff": "UTF-16; save the file as UTF-8",
    b"%PDF-": "a PDF; save its text as a .txt",
    b"PK\x03\x04": "a zip, as .docx and .xlsx are; save a document as .txt, a sheet as .csv",
    b"\xd0\xcf\x11\xe0": "an old Office file; save a document as .txt, a sheet as .csv",
    b"\x1f\x8b": "packed by gzip; unpack it first, with gunzip",
    b"BZh": "packed by bzip2; unpack it first, with bunzip2",
    b"\xfd7zXZ\x00": "packed by xz; unpack it first, with unxz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it first, with unzstd",
    b"PAR1": "Parquet; rename it to end in .parquet",
    b"\x89PNG": "a picture; text is needed",
    b"\xff\xd8\xff": "a picture; text is needed",
    b"GIF8": "a picture; text is needed",
    b"SQLite format 3\x00": "a database; export a table of it as .csv",
    b"{\\rtf": "rich text; save it as plain text, .txt",
    b"\x93NUMPY": "a NumPy array; text is needed",
    b"GGUF": "a model; text is needed",
}


def check_signature(first_line: bytes, name: str) -> None:
    """Raise a DataError if a file that begins with this line is not text."""
    for signature, kind in SIGNATURES.items():
        if first_line.startswith(signature):
            raise DataError(f"{name} line 1: this is {kind}")


def document_lines(path: Path) -> Iterator[str]:
    """Each line with its end as "\\n"; a byte order mark is removed."""
    for line in raw_lines(path):
        yield line.replace("\r\n", "\n")


def text_lines(path: Path) -> Iterator[str]:
    """Each line without its line end."""
    for line in raw_lines(path):
        yield strip_newline(line)


def raw_lines(path: Path) -> Generator[str, None, None]:
    """Each line with the end it has in the file; only a byte order mark is removed."""
    try:
        with path.open("rb") as file:  # bytes are split on \n only, and read line by line
            yield from decode_lines(file, str(path))
    except FileNotFoundError:
        raise no_such_file(path) from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name a file in it") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a stream of bytes, which error messages call `name`."""
    try:
        for number, line in enumerate(stream, start=1):
            yield _decode_line(line, name, number)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from error


def strip_newline(line: str) -> str:
    if line.endswith("\r\n"):
        return line[:-2]
    return line.removesuffix("\n")


def _decode_line(line: bytes, name: str, number: int) -> str:
    if number == 1:
        check_signature(line, name)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name} line {number}: byte {error.start + 1} of the line, 0x{line[error.start]:02x}, "
            "is not UTF-8; save the file as UTF-8"
        ) from None
    if number == 1:
        return text.removeprefix("\ufeff")
    return text
