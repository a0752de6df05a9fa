"""Which files are meant by a file, a folder or a pattern such as "reviews/*.txt"."""

import glob
from collections.abc import Sequence
from pathlib import Path

from qkv.data.endings import TABLES, either
from qkv.errors import DataError
from qkv.files.nearest import did_you_mean


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
    return DataError(f"there is no file {path}{did_you_mean(path)}")


def _files(path: Path, folders: bool) -> list[Path]:
    if path.is_dir():
        return _texts_in(path) if folders else _refuse_folder(path)
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
    raise DataError(f"{folder} is a folder; name files that end in {either(TABLES)}")
