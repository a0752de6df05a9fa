"""Safetensors files written by hand, so that they can be wrong in exactly one way."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from qkv.errors import BundleError
from qkv.weights import open_weights


def content(header: object, data: bytes = b"") -> bytes:
    """The bytes of a file with that header, as text, bytes, or an object to be written."""
    if isinstance(header, str):
        header = header.encode()
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def shard(place: Path, shards: dict[str, dict[str, Tensor]], **index: object) -> Path:
    """A sharded model: each named file with its tensors, and the index, changed as asked."""
    place.mkdir(parents=True, exist_ok=True)
    for file, tensors in shards.items():
        save_file(tensors, place / file, metadata={"format": "pt", "file": file})
    places = {name: file for file, tensors in shards.items() for name in tensors}
    size = sum(t.nbytes for tensors in shards.values() for t in tensors.values())
    whole = {"metadata": {"total_size": size}, "weight_map": places} | index
    (place / "model.safetensors.index.json").write_text(json.dumps(whole))
    return place


def message(place: Path) -> str:
    """What opening that says, which is one line, names the place and is short."""
    with pytest.raises(BundleError) as caught:
        open_weights(place)
    says = str(caught.value)
    assert says.isprintable()
    assert str(place) in says
    assert len(says.replace(str(place), "")) < 400
    return says


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal in kind, shape and every bit, NaNs included."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    bits = [t.reshape(-1).contiguous().view(torch.uint8) for t in (one, other)]
    return torch.equal(*bits)
