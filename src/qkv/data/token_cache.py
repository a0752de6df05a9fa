"""Token ids on disk, so that a text is encoded once; they are mapped from there, not read.

    FOLDER/<sha256 of format, key and tokenizer.json>/
        ids         the tokens of all texts behind each other
        starts      where each text begins, and the length of all
        about.json  the type of the ids, and how many tokens and texts there are

An entry is whole if about.json is there and fits the sizes of the others. It is written beside,
flushed, and moved in file by file, about.json last. Equal keys mean equal bytes: of two processes
that write one entry at once, each may replace what the other has moved in.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import DataError
from qkv.files.safe_io import cache_dir
from qkv.text import Tokenizer

FORMAT = 1  # of an entry; another number means other files
IDS = "ids"
STARTS = "starts"
ABOUT = "about.json"
STAGING = ".new-"
DAY = 24 * 60 * 60

Ids = NDArray[Any]  # uint16 or int32
Places = NDArray[np.int64]


def cache_folder() -> Path:
    """Where tokens are kept."""
    return cache_dir() / "tokens"


def entry_name(key: str, tokenizer: Tokenizer) -> str:
    """The name of the tokens this tokenizer makes of the content named by `key`."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer.json")
        files = sorted(Path(folder).iterdir())
        content = [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256(json.dumps([FORMAT, key, *content]).encode()).hexdigest()


def open_entry(entry: Path) -> tuple[Ids, Places] | None:
    """The ids of all texts and where each begins, mapped; None if the entry is not whole."""
    try:
        about = json.loads((entry / ABOUT).read_text(encoding="utf-8"))
        ids = _mapped(entry / IDS, np.dtype(about["type"]), about["tokens"])
        starts = _mapped(entry / STARTS, np.dtype(np.int64), about["texts"] + 1)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if starts[0] == 0 and starts[-1] == len(ids):
        return (ids, starts)
    return None


def write_entry(entry: Path, chunks: Iterable[tuple[Ids, Places]]) -> None:
    """Make the entry of chunks: ids, and behind how many of them a text ends."""
    folder = entry.parent
    with _blaming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))
    try:
        tokens = 0
        texts = 0
        kind = np.dtype(np.uint16)
        with _blaming(folder):
            _append(staging / IDS, np.zeros(0, kind))
            _append(staging / STARTS, np.zeros(1, np.int64))
        for ids, ends in chunks:
            with _blaming(folder):
                _append(staging / IDS, ids)
                _append(staging / STARTS, ends + tokens)
            tokens = tokens + len(ids)
            texts = texts + len(ends)
            kind = ids.dtype
        with _blaming(folder):
            about = {"type": str(kind), "tokens": tokens, "texts": texts}
            (staging / ABOUT).write_text(json.dumps(about) + "\n", encoding="utf-8")
            _move_in(staging, entry)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _mapped(path: Path, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    if path.stat().st_size != count * kind.itemsize:
        raise ValueError(f"{path} has not the size it should have")
    # Nothing cannot be mapped.
    if count:
        return np.memmap(path, kind, mode="r", shape=(count,))
    return np.zeros(0, kind)


def _append(path: Path, values: NDArray[Any]) -> None:
    with path.open("ab") as file:
        file.write(values.tobytes())


def _move_in(staging: Path, entry: Path) -> None:
    for name in (IDS, STARTS, ABOUT):
        with (staging / name).open("rb") as file:
            os.fsync(file.fileno())
    entry.mkdir(exist_ok=True)
    for name in (IDS, STARTS, ABOUT):
        (staging / name).replace(entry / name)


def _sweep(folder: Path) -> None:
    """Remove what killed processes left; a living one adds to its files all the time."""
    for left in folder.glob(f"{STAGING}*"):
        try:
            last = max(path.stat().st_mtime for path in (left, *left.iterdir()))
        except OSError:  # its process has just finished
            continue
        if time.time() - last > DAY:
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _blaming(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot keep tokens in {folder}: {error.strerror or error}; set QKV_CACHE to a folder "
            "that can be written and has room"
        ) from error
