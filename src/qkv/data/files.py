"""Which files are meant by a file, a folder or a pattern such as "reviews/*.txt"."""

import glob
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from qkv.errors import DataError
from qkv.files.safe_io import suggest_path

# FOLDED data/endings: What a file holds, told from the ending of its name.
# FOLDED data/foreign: Files that are no text at all, told by how they begin, and what to do
#   with each.
# FOLDED data/lines: The lines of a UTF-8 file, split on "\n" and nothing else.
#
#   `str.splitlines` and text mode also break at characters that may stand inside a sentence,
#   such as
#   a form feed or U+2028; files whose lines must stay parallel, or numbered, cannot afford
#   that.

WRITTEN = (".csv", ".tsv", ".jsonl")  # the tables that are also written here

TABLES = (*WRITTEN, ".parquet")

# Of other programs: how to make a table of it.
OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save its sheet as .csv"),
    ".json": "write one object a line and call it .jsonl",
    ".gz": "unpack it first, with gunzip",
    ".zip": "unpack it first",
    ".txt": "give it a line with the names of its columns, and call it .csv or .tsv",
}


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def join_or(endings: Iterable[str]) -> str:
    """The endings in a sentence."""
    *others, last = endings
    return f"{', '.join(others)} or {last}"


def find_files(paths: Sequence[Path], folders: bool) -> list[Path]:
    """Every file meant, each once: as given, and sorted by name inside a folder or a pattern.

    A folder stands for all its .txt files, at any depth, where `folders` are of use.
    """
    if not paths:
        raise DataError("no file was given; name at least one")
    found = [file for path in paths for file in _files(Path(path), folders)]
    return list(dict.fromkeys(found))


def no_such_file(path: Path) -> DataError:
    """The sentence for a file that is not there, with the nearest name beside it."""
    return DataError(f"there is no file {path}{suggest_path(path)}")


def _files(path: Path, folders: bool) -> list[Path]:
    if path.is_dir():
        if folders:
            return _texts_in(path)
        return _refuse_folder(path)
    if path.exists():
        return [path]
    if not glob.has_magic(str(path)):
        raise no_such_file(path)
    # Path.glob would not take a pattern that begins with / or ..
    found = [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207
    files = sorted(file for file in found if not file.is_dir())
    if not files:
        raise DataError(f"no file matches {path}")
    return files


def _texts_in(folder: Path) -> list[Path]:
    texts = sorted(f for f in folder.rglob("*") if f.suffix.lower() == ".txt" and f.is_file())
    if not texts:
        raise DataError(f"the folder {folder} holds no .txt file; name the files you want read")
    return texts


def _refuse_folder(folder: Path) -> list[Path]:
    raise DataError(f"{folder} is a folder; name files that end in {join_or(TABLES)}")


BEGINNINGS: dict[bytes, str] = {
    b"\xff\xfe": "UTF-16; save the file as UTF-8",
    b"\xfe\xff": "UTF-16; save the file as UTF-8",
    b"%PDF-": "a PDF; save its text as a .txt",
    b"PK\x03\x04": "a zip, as .docx and .xlsx are; save a document as .txt, a sheet as .csv",
    b"\xd0\xcf\x11\xe0": "an old Office file; save a document as .txt, a sheet as .csv",
    b"\x1f\x8b": "packed by gzip; unpack it first, with gunzip",
    b"BZh": "packed by bzip2; unpack it first, with bunzip2",
    b"\xfd7zXZ\x00": "packed by xz; unpack it first, with unxz",
    b"\x28\xb5\x2f\xfd": "packed by zstd; unpack it first, with unzstd",
    b"PAR1": "Parquet; let its name end in .parquet",
    b"\x89PNG": "a picture; text is needed",
    b"\xff\xd8\xff": "a picture; text is needed",
    b"GIF8": "a picture; text is needed",
    b"SQLite format 3\x00": "a database; export a table of it as .csv",
    b"{\\rtf": "rich text; save it as plain text, .txt",
    b"\x93NUMPY": "an array of NumPy; text is needed",
    b"GGUF": "a model; text is needed",
}


def check_signature(first: bytes, name: str) -> None:
    """A DataError if a file whose first line is this holds no text."""
    for beginning, kind in BEGINNINGS.items():
        if first.startswith(beginning):
            raise DataError(f"{name} line 1: this is {kind}")


def document_lines(path: Path) -> Iterator[str]:
    """Each line with a "\\n" for its end; a byte order mark is left out."""
    for line in raw_lines(path):
        yield line.replace("\r\n", "\n")


def text_lines(path: Path) -> Iterator[str]:
    """Each line without its end."""
    for line in raw_lines(path):
        yield strip_newline(line)


def raw_lines(path: Path) -> Iterator[str]:
    """Each line with the end it has in the file; only a byte order mark is left out."""
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
    """The lines of bytes that are called by that name where one of them is at fault."""
    try:
        for number, line in enumerate(stream, start=1):
            yield _decoded(line, name, number)
    except OSError as error:
        raise DataError(f"cannot read {name}: {error.strerror or error}") from error


def strip_newline(line: str) -> str:
    if line.endswith("\r\n"):
        return line[:-2]
    return line.removesuffix("\n")


def _decoded(line: bytes, name: str, number: int) -> str:
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
