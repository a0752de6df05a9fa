"""All tensors of a model by name, whichever of its files they are in.

A model is one .safetensors file, or a directory with shards and an index:

    model.safetensors.index.json
    {"metadata": {…}, "weight_map": {"embedding.weight": "model-00001-of-00002.safetensors", …}}

Within a directory no symlink may lead out of it; a file that the user names may be anywhere.
"""

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

MAX_INDEX_BYTES = 100_000_000
MAX_OTHER_CHARACTERS = 65_536  # of members that are skipped


def read_index(path: Path) -> dict[str, set[str]]:
    """The shards of an index by file name, each with the names of the tensors it should hold."""
    file = RegularFile(path)
    if file.size > MAX_INDEX_BYTES:
        raise BundleError(
            f"{path} has {file.size} bytes, and an index at most {MAX_INDEX_BYTES}; get it again"
        )
    scanner = JsonScanner(file.read(0, file.size), path)
    file.close()
    shard_of: dict[str, str] = {}

    def read_member(name: str) -> None:
        if name == "weight_map":
            shard_of.update(scanner.read_string_map(name))
        else:
            scanner.read_value(MAX_OTHER_CHARACTERS)

    scanner.read_object(read_member)
    scanner.expect_end()
    if not shard_of:
        raise BundleError(
            f"{path} has no weight_map that says which file holds which tensor; get it again"
        )
    shards: dict[str, set[str]] = {}
    for tensor, shard in shard_of.items():
        shards.setdefault(shard, set()).add(tensor)
    for shard in shards:
        _check_shard_name(path, shard)
    return dict(sorted(shards.items()))


def check_shard(path: Path, names: Set[str], shards: Mapping[str, Set[str]]) -> None:
    """Raises unless the shard at that path holds exactly the tensors the index lists for it."""
    expected = shards[path.name]
    if missing := sorted(expected - names):
        raise BundleError(
            f"{path} lacks {summarize_names(missing)}, which the index promises in it; the files "
            "do not belong together, so get them again"
        )
    for name in sorted(names - expected):
        other = next((shard for shard, tensors in shards.items() if name in tensors), None)
        if other is None:
            problem = "not in the index"
        else:
            problem = f"which the index places in {short_repr(other)}"
        raise BundleError(
            f"{path} holds the tensor {short_repr(name)}, {problem}; the files do not belong "
            "together, so get them again"
        )


def _check_shard_name(path: Path, shard: str) -> None:
    """A shard is a file next to the index: a path could lead anywhere on this machine."""
    is_plain = shard.isprintable() and not set(shard) & set("/\\:")
    if not is_plain or not shard.endswith(".safetensors") or shard.startswith("."):
        raise BundleError(
            f"{path} names the file {short_repr(shard)}; shards must be .safetensors files beside "
            "the index, named without a path"
        )


SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "pytorch_model*.bin.index.json")

EXPECTED_FILES = f"{SINGLE}, or {INDEX} and its shards"


def find_weight_files(path: Path) -> tuple[list[Path], dict[str, set[str]] | None]:
    """The files with the weights, and the tensors an index lists for each, if there is one."""
    try:
        if path.is_dir():
            return _find_in_directory(path)
        if not path.exists():
            raise BundleError(
                f"{path} does not exist; give a .safetensors file or a directory with "
                f"{EXPECTED_FILES}"
            )
    except OSError as error:
        raise BundleError(f"cannot look into {path}: {error.strerror or error}") from error
    if _is_pickle(path.name):
        raise BundleError(_pickle_message(f"{path} is a pickle file"))
    if path.suffix != ".safetensors":
        raise BundleError(f"{path} is not a .safetensors file; give one, or the directory of it")
    return [path], None


def _find_in_directory(directory: Path) -> tuple[list[Path], dict[str, set[str]] | None]:
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    tensors = [name for name in names if name.endswith(".safetensors")]
    if INDEX in names:
        return _find_shards(directory, names)
    if SINGLE in tensors:
        tensors = [SINGLE]
    if len(tensors) > 1:
        raise BundleError(
            f"{directory} holds {len(tensors)} safetensors files ({summarize_names(tensors)}) and "
            f"no {INDEX} that says how they belong together; give one of them, or get the index"
        )
    if tensors:
        return [check_inside_directory(directory / tensors[0])], None
    pickles = [name for name in names if _is_pickle(name)]
    if pickles:
        raise BundleError(
            _pickle_message(f"{directory} holds only pickle files ({summarize_names(pickles)})")
        )
    raise BundleError(f"{directory} holds no weights; expected {EXPECTED_FILES}")


def _find_shards(directory: Path, names: list[str]) -> tuple[list[Path], dict[str, set[str]]]:
    shards = read_index(check_inside_directory(directory / INDEX))
    if SINGLE in names and SINGLE not in shards:
        raise BundleError(
            f"{directory} holds {SINGLE} and also {INDEX}, which does not name it; move away the "
            "one that does not belong to the model"
        )
    if missing := [shard for shard in shards if shard not in names]:
        raise BundleError(
            f"{directory} lacks {len(missing)} of the {len(shards)} files its index names: "
            f"{summarize_names(missing)}; get them too"
        )
    return [check_inside_directory(directory / shard) for shard in shards], shards


def _is_pickle(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in PICKLES)


def _pickle_message(subject: str) -> str:
    return (
        f"{subject}, which can run code when loaded; convert it to safetensors with the tool that "
        "made it, e.g. save_pretrained(..., safe_serialization=True)"
    )


def open_weights(path: str | os.PathLike[str]) -> Weights:
    """The tensors of a .safetensors file or of a directory that holds one, or its shards.

    Only headers are read. Pickle files are refused, because loading one can run any code.
    """
    paths, shards = find_weight_files(Path(path))
    files = []
    for file_path in paths:
        file = RegularFile(file_path)
        entries = read_header(file)
        if shards is not None:
            check_shard(file_path, entries.keys(), shards)
        files.append((file, entries))
    return Weights(Path(path), files)


class Weights(Collection[str]):
    """A collection of tensor names in the order of the data; tensors are read on demand.

    The files stay open until `close`, the end of a `with`, or the end of this object.
    """

    def __init__(
        self, path: Path, files: list[tuple[RegularFile, Mapping[str, TensorEntry]]]
    ) -> None:
        self._path = path
        self._files = [file for file, _ in files]
        self._entries: dict[str, tuple[RegularFile, TensorEntry]] = {}
        for file, entries in files:
            for name, entry in entries.items():
                self._entries[name] = (file, entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        """Its size along each axis; () for a scalar."""
        return self._entry(name)[1].shape

    def dtype(self, name: str) -> torch.dtype:
        """The dtype it is stored in."""
        return self._entry(name)[1].dtype

    @property
    def nbytes(self) -> int:
        """The size of all tensors together, as they are stored."""
        return sum(entry.end - entry.start for _, entry in self._entries.values())

    def mmap(self, name: str) -> Tensor:
        """The tensor as a view of the mapped file: a page is read when first used.

        Writing to it changes what this object maps and never the file, and it stays valid after
        `close`. The file must not be truncated while it is in use: the system would kill the
        process. A tensor that is not aligned in the file is read instead.
        """
        file, entry = self._entry(name)
        return map_tensor(file, name, entry)

    def read(
        self, name: str, dtype: torch.dtype | None = None, out: Tensor | None = None
    ) -> Tensor:
        """The tensor in memory of its own, as `dtype` if given; the file is never mapped for it.

        Besides the result only a small buffer is held, also when converting. With `out`, a vector
        of that dtype with at least as many elements, the result is a view of its beginning.
        """
        file, entry = self._entry(name)
        return read_tensor(file, name, entry, dtype or entry.dtype, out)

    def close(self) -> None:
        """Close the files; tensors that were mapped or read stay valid."""
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

    def _entry(self, name: str) -> tuple[RegularFile, TensorEntry]:
        if name not in self._entries:
            raise BundleError(
                f"{self._path} has no tensor {short_repr(name)} among its {len(self)}"
            )
        return self._entries[name]
