"""Which file of a sharded model holds which tensor: model.safetensors.index.json.

{"metadata": {…}, "weight_map": {"embedding.weight": "model-00001-of-00002.safetensors", …}}
"""

from collections.abc import Mapping, Set
from pathlib import Path

from qkv.errors import BundleError
from qkv.files import Walk, listed, shown
from qkv.weights.regular_file import RegularFile

LONGEST_INDEX = 100_000_000  # bytes
LONGEST_OTHER = 65_536  # characters, of members that are not read


def read_index(path: Path) -> dict[str, set[str]]:
    """The names of the shards, each with the names of the tensors it should hold."""
    file = RegularFile(path)
    if file.size > LONGEST_INDEX:
        raise BundleError(
            f"{path} has {file.size} bytes, and an index at most {LONGEST_INDEX}; get it again"
        )
    walk = Walk(file.read(0, file.size), path)
    file.close()
    places: dict[str, str] = {}

    def member(name: str) -> None:
        if name == "weight_map":
            places.update(walk.strings(name))
        else:
            walk.value(LONGEST_OTHER)

    walk.members(member)
    walk.end()
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
            f"{path} lacks {listed(lacking)}, which the index promises in it; the files do not "
            "belong together, so get them again"
        )
    for name in sorted(held - promised):
        also = [shard for shard, tensors in shards.items() if name in tensors]
        known = f"which the index places in {shown(also[0])}" if also else "not in the index"
        raise BundleError(
            f"{path} holds the tensor {shown(name)}, {known}; the files do not belong together, so "
            "get them again"
        )


def _check_name(path: Path, shard: str) -> None:
    """A shard is a file beside the index: a path could lead anywhere on this machine."""
    plain = shard.isprintable() and not set(shard) & set("/\\:")
    if not plain or not shard.endswith(".safetensors") or shard.startswith("."):
        raise BundleError(
            f"{path} names the file {shown(shard)}; shards must be .safetensors files beside the "
            "index, named without a path"
        )
