"""All tensors of a model by name, whichever of its files they are in."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import shown
from qkv.weights.entry import Entry
from qkv.weights.header import read_header
from qkv.weights.index import check_shard
from qkv.weights.places import find
from qkv.weights.regular_file import RegularFile
from qkv.weights.tensors import map_tensor, read_tensor


def open_weights(place: str | os.PathLike[str]) -> Weights:
    """The tensors of a .safetensors file or of a directory that holds one, or its shards.

    Only headers are read. Pickle files are refused, because loading one can run any code.
    """
    paths, shards = find(Path(place))
    parts = []
    for path in paths:
        file = RegularFile(path)
        entries = read_header(file)
        if shards is not None:
            check_shard(path, entries.keys(), shards)
        parts.append((file, entries))
    return Weights(Path(place), parts)


class Weights(Collection[str]):
    """The names of the tensors in the order they lie on disk; each is read when asked for.

    The files stay open until `close`, the end of a `with`, or the end of this object.
    """

    def __init__(self, place: Path, parts: list[tuple[RegularFile, Mapping[str, Entry]]]) -> None:
        self._place = place
        self._files = [file for file, _ in parts]
        self._found = {
            name: (file, entry) for file, entries in parts for name, entry in entries.items()
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def shape(self, name: str) -> tuple[int, ...]:
        """Its size along each axis; empty for a single number."""
        return self._at(name)[1].shape

    def dtype(self, name: str) -> torch.dtype:
        """The kind of number it is stored as."""
        return self._at(name)[1].dtype

    @property
    def bytes(self) -> int:
        """What all tensors together take, as they are stored."""
        return sum(entry.end - entry.start for _, entry in self._found.values())

    def mapped(self, name: str) -> Tensor:
        """The tensor without a copy: a page of the file is read when a number on it is first used.

        It may be written to, which changes what this object maps and never the file, and it stays
        valid after `close`. The file must not be cut off while it is in use: the system would end
        the process. Where its numbers do not lie at a multiple of their size, it is read instead.
        """
        file, entry = self._at(name)
        return map_tensor(file, name, entry)

    def read(
        self, name: str, dtype: torch.dtype | None = None, room: Tensor | None = None
    ) -> Tensor:
        """The tensor in memory of its own, as `dtype` if given; the file is never mapped for it.

        Besides the result only a small piece is held, also when converting. With `room`, a vector
        of that dtype and of at least as many numbers, the result lies in its beginning.
        """
        file, entry = self._at(name)
        return read_tensor(file, name, entry, entry.dtype if dtype is None else dtype, room)

    def close(self) -> None:
        """Let go of the files; tensors that were mapped or read stay valid."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _at(self, name: str) -> tuple[RegularFile, Entry]:
        if name not in self._found:
            raise BundleError(f"{self._place} has no tensor {shown(name)} among its {len(self)}")
        return self._found[name]
