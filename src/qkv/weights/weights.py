"""All tensors of a model by name, whichever of its files they are in."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Set
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from qkv.errors import BundleError
from qkv.files import JsonScanner, check_inside_directory, short_repr, summarize_names
from qkv.weights.safetensors_file import (
    RegularFile,
    TensorEntry,
    map_tensor,
    read_header,
    read_tensor,
)

# FOLDED weights/index: Which file of a sharded model holds which tensor:
#   model.safetensors.index.json.
#
#   {"metadata": {…}, "weight_map": {"embedding.weight": "model-00001-of-00002.safetensors",
#   …}}
# FOLDED weights/places: Where the weights of a model are: one file, or the shards of a
#   directory.
#
#   Of a directory no link may lead out; a file that the user names is the user's choice,
#   wherever it
#   leads.

LONGEST_INDEX = 100_000_000  # bytes

LONGEST_OTHER = 65_536  # characters, of members that are not read


def read_index(path: Path) -> dict[str, set[str]]:
    """The names of the shards, each with the names of the tensors it should hold."""
    file = RegularFile(path)
    if file.size > LONGEST_INDEX:
        raise BundleError(
            f"{path} has {file.size} bytes, and an index at most {LONGEST_INDEX}; get it again"
        )
    walk = JsonScanner(file.read(0, file.size), path)
    file.close()
    places: dict[str, str] = {}

    def member(name: str) -> None:
        if name == "weight_map":
            places.update(walk.read_string_map(name))
        else:
            walk.read_value(LONGEST_OTHER)

    walk.read_object(member)
    walk.expect_end()
    if not places:
        raise BundleError(
            f"{path} has no weight_map that says which file holds which tensor; get it again"
        )
    shards: dict[str, set[str]] = {}
    for tensor, shard in places.items():
        shards.setdefault(shard, set()).add(tensor)
    for shard in shards:
        _check_name(path, shard)
    return dict(sorted(shards.items()))


def check_shard(path: Path, held: Set[str], shards: Mapping[str, Set[str]]) -> None:
    """The shard at that path holds what the index says, no tensor less and none more."""
    promised = shards[path.name]
    if lacking := sorted(promised - held):
        raise BundleError(
            f"{path} lacks {summarize_names(lacking)}, which the index promises in it; the files "
            "do not "
            "belong together, so get them again"
        )
    for name in sorted(held - promised):
        also = [shard for shard, tensors in shards.items() if name in tensors]
        known = f"which the index places in {short_repr(also[0])}" if also else "not in the index"
        raise BundleError(
            f"{path} holds the tensor {short_repr(name)}, {known}; the files do not belong "
            "together, so "
            "get them again"
        )


def _check_name(path: Path, shard: str) -> None:
    """A shard is a file beside the index: a path could lead anywhere on this machine."""
    plain = shard.isprintable() and not set(shard) & set("/\\:")
    if not plain or not shard.endswith(".safetensors") or shard.startswith("."):
        raise BundleError(
            f"{path} names the file {short_repr(shard)}; shards must be .safetensors files beside "
            "the "
            "index, named without a path"
        )


SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "pytorch_model*.bin.index.json")

WANTED = f"{SINGLE}, or {INDEX} and its shards"


def find(place: Path) -> tuple[list[Path], dict[str, set[str]] | None]:
    """The files with the weights, and what the index promises in each if there is one."""
    try:
        if place.is_dir():
            return _in_directory(place)
        if not place.exists():
            raise BundleError(
                f"{place} does not exist; give a .safetensors file or a directory with {WANTED}"
            )
    except OSError as error:
        raise BundleError(f"cannot look into {place}: {error.strerror or error}") from error
    if _is_pickle(place.name):
        raise BundleError(_no_pickles(f"{place} is a pickle file"))
    if place.suffix != ".safetensors":
        raise BundleError(f"{place} is not a .safetensors file; give one, or the directory of it")
    return [place], None


def _in_directory(place: Path) -> tuple[list[Path], dict[str, set[str]] | None]:
    names = sorted(path.name for path in place.iterdir() if not path.name.startswith("."))
    tensors = [name for name in names if name.endswith(".safetensors")]
    if INDEX in names:
        return _sharded(place, names)
    if SINGLE in tensors:
        tensors = [SINGLE]
    if len(tensors) > 1:
        raise BundleError(
            f"{place} holds {len(tensors)} safetensors files ({summarize_names(tensors)}) and no "
            f"{INDEX} "
            "that says how they belong together; give one of them, or get the index"
        )
    if tensors:
        return [check_inside_directory(place / tensors[0])], None
    pickles = [name for name in names if _is_pickle(name)]
    if pickles:
        raise BundleError(
            _no_pickles(f"{place} holds only pickle files ({summarize_names(pickles)})")
        )
    raise BundleError(f"{place} holds no weights; expected {WANTED}")


def _sharded(place: Path, names: list[str]) -> tuple[list[Path], dict[str, set[str]]]:
    shards = read_index(check_inside_directory(place / INDEX))
    if SINGLE in names and SINGLE not in shards:
        raise BundleError(
            f"{place} holds {SINGLE} and also {INDEX}, which does not name it; move away the one "
            "that does not belong to the model"
        )
    if missing := [shard for shard in shards if shard not in names]:
        raise BundleError(
            f"{place} lacks {len(missing)} of the {len(shards)} files its index names: "
            f"{summarize_names(missing)}; get them too"
        )
    return [check_inside_directory(place / shard) for shard in shards], shards


def _is_pickle(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in PICKLES)


def _no_pickles(found: str) -> str:
    return (
        f"{found}, which can run code when loaded; convert it to safetensors with the tool that "
        "made it, e.g. save_pretrained(..., safe_serialization=True)"
    )


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

    def __init__(
        self, place: Path, parts: list[tuple[RegularFile, Mapping[str, TensorEntry]]]
    ) -> None:
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
    def nbytes(self) -> int:
        """What all tensors together take, as they are stored."""
        return sum(entry.end - entry.start for _, entry in self._found.values())

    def mmap(self, name: str) -> Tensor:
        """The tensor without a copy: a page of the file is read when a number on it is first used.

        It may be written to, which changes what this object maps and never the file, and it stays
        valid after `close`. The file must not be cut off while it is in use: the system would end
        the process. Where its numbers do not lie at a multiple of their size, it is read instead.
        """
        file, entry = self._at(name)
        return map_tensor(file, name, entry)

    def read(
        self, name: str, dtype: torch.dtype | None = None, out: Tensor | None = None
    ) -> Tensor:
        """The tensor in memory of its own, as `dtype` if given; the file is never mapped for it.

        Besides the result only a small piece is held, also when converting. With `room`, a vector
        of that dtype and of at least as many numbers, the result lies in its beginning.
        """
        file, entry = self._at(name)
        return read_tensor(file, name, entry, entry.dtype if dtype is None else dtype, out)

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

    def _at(self, name: str) -> tuple[RegularFile, TensorEntry]:
        if name not in self._found:
            raise BundleError(
                f"{self._place} has no tensor {short_repr(name)} among its {len(self)}"
            )
        return self._found[name]
