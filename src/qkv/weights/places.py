"""Where the weights of a model are: one file, or the shards of a directory.

Of a directory no link may lead out; a file that the user names is the user's choice, wherever it
leads.
"""

from fnmatch import fnmatch
from pathlib import Path

from qkv.errors import BundleError
from qkv.files import listed, within
from qkv.weights.index import read_index

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
            f"{place} holds {len(tensors)} safetensors files ({listed(tensors)}) and no {INDEX} "
            "that says how they belong together; give one of them, or get the index"
        )
    if tensors:
        return [within(place / tensors[0])], None
    pickles = [name for name in names if _is_pickle(name)]
    if pickles:
        raise BundleError(_no_pickles(f"{place} holds only pickle files ({listed(pickles)})"))
    raise BundleError(f"{place} holds no weights; expected {WANTED}")


def _sharded(place: Path, names: list[str]) -> tuple[list[Path], dict[str, set[str]]]:
    shards = read_index(within(place / INDEX))
    if SINGLE in names and SINGLE not in shards:
        raise BundleError(
            f"{place} holds {SINGLE} and also {INDEX}, which does not name it; move away the one "
            "that does not belong to the model"
        )
    if missing := [shard for shard in shards if shard not in names]:
        raise BundleError(
            f"{place} lacks {len(missing)} of the {len(shards)} files its index names: "
            f"{listed(missing)}; get them too"
        )
    return [within(place / shard) for shard in shards], shards


def _is_pickle(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in PICKLES)


def _no_pickles(found: str) -> str:
    return (
        f"{found}, which can run code when loaded; convert it to safetensors with the tool that "
        "made it, e.g. save_pretrained(..., safe_serialization=True)"
    )
