"""Shape checks: tensor sizes are checked once, where they enter a public function."""

from functools import cache

from torch import Tensor

from qkv.errors import ShapeError

AXES = {
    "B": "batch",
    "T": "query positions",
    "S": "key positions",
    "D": "model width",
    "H": "heads",
    "K": "key/value heads",
    "E": "head width",
    "F": "feed-forward width",
    "V": "vocabulary",
    "L": "layers",
}

_letters = cache(str.split)  # the same few specifications are parsed over and over


def expect(**tensors: tuple[Tensor, str]) -> dict[str, int]:
    """The size of every named axis, after checking that each letter has one size everywhere.

    expect(q=(q, "B H T E"), k=(k, "B K S E")) -> {"B": 2, "H": 6, "T": 5, "E": 11, ...}
    """
    sizes: dict[str, int] = {}
    first_tensor: dict[str, str] = {}
    for name, (tensor, axes) in tensors.items():
        letters = _letters(axes)
        if not isinstance(tensor, Tensor):
            raise ShapeError(f"{name} is a {type(tensor).__name__}, but a torch tensor is needed")
        if tensor.dim() != len(letters):
            raise ShapeError(
                f"{name} has shape {tuple(tensor.shape)} but needs {len(letters)} axes ({axes})"
            )
        for letter, size in zip(letters, tensor.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                meaning = AXES.get(letter, letter)
                raise ShapeError(
                    f"{name} has {letter}={size} ({meaning}) but {first_tensor[letter]} has "
                    f"{letter}={sizes[letter]}; shape of {name}: {tuple(tensor.shape)} = ({axes})"
                )
            first_tensor.setdefault(letter, name)
    return sizes
