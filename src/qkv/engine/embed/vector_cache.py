"""A cache of embeddings on disk, so that a second look at the same texts does not embed them again.

    CACHE/vectors/<sha256 of format, model, options and texts>.npz

An entry holds the vectors, the number of long texts and the note about the pooling. It is written
atomically; one that cannot be read is computed again. The oldest entries are removed when all of
them together exceed MAX_CACHE_BYTES.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from qkv.engine.embed.embedder import Vectors
from qkv.engine.embed.vector_files import Fingerprint
from qkv.files import atomic_write, cache_dir

FORMAT = 1  # version of an entry, part of its hash

MAX_CACHE_BYTES = 1 << 30


@dataclass(frozen=True)
class CachedVectors:
    """The vectors of some texts, and what was noted when they were computed."""

    vectors: Vectors
    long_texts: int
    note: str


def cache_entry(model: str, options: Mapping[str, Any], texts: Sequence[str]) -> Path:
    """The file for the vectors of these texts; `model` is the fingerprint of the model."""
    fingerprint = Fingerprint()
    fingerprint.add([json.dumps([FORMAT, model, dict(options)], sort_keys=True)])
    fingerprint.add(texts)
    return cache_dir() / "vectors" / f"{fingerprint}.npz"


def read_cached(entry: Path) -> CachedVectors | None:
    """The content of an entry; None if it is missing or damaged."""
    try:
        with np.load(entry, allow_pickle=False) as arrays:
            vectors = np.asarray(arrays["vectors"], np.float32)
            content = CachedVectors(vectors, int(arrays["long_texts"]), str(arrays["note"]))
        entry.touch()  # recently used
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return content


def write_cached(entry: Path, content: CachedVectors) -> None:
    """Write an entry, and remove the oldest ones if there are too many; may raise OSError."""
    file = BytesIO()
    np.savez(
        file,
        vectors=content.vectors,
        long_texts=np.array(content.long_texts),
        note=np.array(content.note),
    )
    entry.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(entry, file.getvalue())
    _remove_oldest(entry.parent)


def _remove_oldest(folder: Path) -> None:
    entries = []
    for path in folder.glob("*.npz"):
        with suppress(OSError):  # another process has removed it
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = 0
    for _, size, path in sorted(entries, reverse=True):
        total += size
        if total > MAX_CACHE_BYTES:
            with suppress(OSError):
                path.unlink()
