"""A cache of token ids on disk, so that texts are encoded once and memory-mapped afterwards.

    FOLDER/<sha256 of format, key and tokenizer.json>/
        ids         the tokens of all texts, concatenated
        starts      where each text begins, then the total
        about.json  the dtype of the ids, and the number of tokens and texts

An entry is complete if about.json exists and matches the sizes of the other files. It is written to
a staging folder, flushed, and moved file by file, about.json last. Equal keys mean equal bytes, so
two processes that write the same entry at once may safely replace each other's files.
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
from qkv.files import cache_dir
from qkv.text import Tokenizer

FORMAT = 1  # version of an entry, part of its hash
IDS = "ids"
STARTS = "starts"
METADATA = "about.json"
STAGING_PREFIX = ".new-"
MAX_STAGING_AGE = 24 * 60 * 60  # seconds

Ids = NDArray[Any]  # uint16 or int32
Offsets = NDArray[np.int64]


def cache_folder() -> Path:
    """The default folder of the cache."""
    return cache_dir() / "tokens"


def entry_name(key: str, tokenizer: Tokenizer) -> str:
    """The name of the entry for the content identified by `key`, encoded by this tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer.json")
        files = sorted(Path(folder).iterdir())
        content = [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256(json.dumps([FORMAT, key, *content]).encode()).hexdigest()


def open_entry(entry: Path) -> tuple[Ids, Offsets] | None:
    """The memory-mapped ids and starts of the texts; None if the entry is missing or incomplete."""
    try:
        about = json.loads((entry / METADATA).read_text(encoding="utf-8"))
        ids = _map_array(entry / IDS, np.dtype(about["type"]), about["tokens"])
        starts = _map_array(entry / STARTS, np.dtype(np.int64), about["texts"] + 1)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if starts[0] == 0 and starts[-1] == len(ids):
        return ids, starts
    return None


def write_entry(entry: Path, batches: Iterable[tuple[Ids, Offsets]]) -> None:
    """Write an entry from batches: ids, and the positions in them at which a text ends."""
    folder = entry.parent
    with _cache_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder)
        staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=folder))
    try:
        tokens = 0
        texts = 0
        dtype = np.dtype(np.uint16)
        with _cache_errors(folder):
            _append(staging / IDS, np.zeros(0, dtype))
            _append(staging / STARTS, np.zeros(1, np.int64))
        for ids, ends in batches:
            with _cache_errors(folder):
                _append(staging / IDS, ids)
                _append(staging / STARTS, ends + tokens)
            tokens += len(ids)
            texts += len(ends)
            dtype = ids.dtype
        with _cache_errors(folder):
            about = {"type": str(dtype), "tokens": tokens, "texts": texts}
            (staging / METADATA).write_text(json.dumps(about) + "\n", encoding="utf-8")
            _publish(staging, entry)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _map_array(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if path.stat().st_size != count * dtype.itemsize:
        raise ValueError(f"{path} does not have the size in {METADATA}")
    if not count:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))


def _append(path: Path, values: NDArray[Any]) -> None:
    with path.open("ab") as file:
        file.write(values.tobytes())


def _publish(staging: Path, entry: Path) -> None:
    for name in (IDS, STARTS, METADATA):
        with (staging / name).open("rb") as file:
            os.fsync(file.fileno())
    entry.mkdir(exist_ok=True)
    for name in (IDS, STARTS, METADATA):
        (staging / name).replace(entry / name)


def _remove_abandoned(folder: Path) -> None:
    """Remove staging folders of killed processes; a live one keeps writing to its files."""
    for staging in folder.glob(f"{STAGING_PREFIX}*"):
        try:
            last = max(path.stat().st_mtime for path in (staging, *staging.iterdir()))
        except OSError:  # its process has just finished
            continue
        if time.time() - last > MAX_STAGING_AGE:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _cache_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot cache tokens in {folder}: {error.strerror or error}; "
            "set QKV_CACHE to a folder that is writable and has free space"
        ) from error
