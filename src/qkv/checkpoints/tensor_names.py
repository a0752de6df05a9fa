"""Which public tensor becomes which of our parameters: one map per format, used both ways.

    "encoder.{i}.attention.query": "encoder.layer.{i}.attention.self.query"

An entry names a parameter, or a module whose weight and bias are mapped alike; {i} is the layer.
Where the two sides are stored differently, the right side is a conversion: `Transpose` for matrices
stored inputs first, `Squeeze` for vectors stored as a (1, n) matrix, `SplitRows` for one public
tensor that holds several of our parameters, such as a fused QKV matrix.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from qkv.errors import ConfigError

LAYER = re.compile(r"^(encoder|decoder)\.(\d+)\.")
Sizes = Mapping[str, torch.Size]


@dataclass(frozen=True)
class Copy:
    """One public tensor that is one parameter, unchanged. The base of all conversions."""

    label: ClassVar[str] = "as they are"  # on the import card
    is_view: ClassVar[bool] = True  # stored as we need it, so it can be memory-mapped

    public: str
    params: tuple[str, ...] = ()

    def public_shape(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape of the public tensor, from those of our parameters."""
        return tuple(sizes[self.params[0]])

    def to_params(self, tensor: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        """Our parameters from the public tensor, as views of it where possible."""
        return {self.params[0]: tensor}

    def to_public(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The public tensor from our parameters."""
        return weights[self.params[0]]


@dataclass(frozen=True)
class Transpose(Copy):
    """A matrix stored (inputs, outputs), where ours is (outputs, inputs)."""

    label = "transposed"
    is_view = False

    def public_shape(self, sizes: Sizes) -> tuple[int, ...]:
        return super().public_shape(sizes)[::-1]

    def to_params(self, tensor: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        return {self.params[0]: tensor.t()}

    def to_public(self, weights: Mapping[str, Tensor]) -> Tensor:
        return weights[self.params[0]].t().contiguous()


@dataclass(frozen=True)
class Squeeze(Copy):
    """A vector stored as a (1, n) matrix."""

    label = "flattened"
    is_view = False

    def public_shape(self, sizes: Sizes) -> tuple[int, ...]:
        return (1, *super().public_shape(sizes))

    def to_params(self, tensor: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        return {self.params[0]: tensor.squeeze(0)}

    def to_public(self, weights: Mapping[str, Tensor]) -> Tensor:
        return weights[self.params[0]].unsqueeze(0)


@dataclass(frozen=True)
class SplitRows(Copy):
    """Several parameters concatenated along their rows in one public tensor.

    heads: GPT-NeoX interleaves by head: q₁ k₁ v₁ q₂ k₂ v₂ …, so rows are grouped into this many.
    transposed: the public matrix is stored (inputs, outputs), as in GPT-2.
    """

    label = "taken apart"
    is_view = False

    transposed: bool = False
    heads: int = 1

    def public_shape(self, sizes: Sizes) -> tuple[int, ...]:
        rows = sum(sizes[name][0] for name in self.params)
        columns = sizes[self.params[0]][1:]
        if self.transposed:
            return (*columns, rows)
        return (rows, *columns)

    def to_params(self, tensor: Tensor, sizes: Sizes) -> dict[str, Tensor]:
        if self.transposed:
            tensor = tensor.t()  # the identity for a bias
        by_head = tensor.reshape(self.heads, -1, *tensor.shape[1:])
        rows = [sizes[name][0] // self.heads for name in self.params]
        params = {}
        for name, part in zip(self.params, torch.split(by_head, rows, dim=1), strict=True):
            params[name] = part.reshape(sizes[name])
        return params

    def to_public(self, weights: Mapping[str, Tensor]) -> Tensor:
        by_head = []
        for name in self.params:
            weight = weights[name]
            by_head.append(weight.reshape(self.heads, -1, *weight.shape[1:]))
        tensor = torch.cat(by_head, dim=1).flatten(0, 1)
        if self.transposed:
            return tensor.t().contiguous()
        return tensor


TensorMap = dict[str | tuple[str, ...], str | Copy]


def resolve(tensor_map: TensorMap, parameters: Iterable[str]) -> list[Copy]:
    """One conversion for each public tensor these parameters need, with layer numbers filled in."""
    conversions: dict[str, Copy] = {}
    for name in parameters:
        conversion = _find(tensor_map, name)
        conversions.setdefault(conversion.public, conversion)
    return list(conversions.values())


def _find(tensor_map: TensorMap, name: str) -> Copy:
    """The first entry for a parameter: by its own name, or by that of its module."""
    layer = LAYER.search(name)
    number = ""
    pattern = name
    if layer is not None:
        number = layer[2]
        pattern = LAYER.sub(r"\1.{i}.", name)
    module, _, leaf = pattern.rpartition(".")
    for key, value in tensor_map.items():
        keys = (key,) if isinstance(key, str) else key
        for candidate, suffix in ((pattern, ""), (module, f".{leaf}")):
            if candidate not in keys:
                continue
            conversion = Copy(value) if isinstance(value, str) else value
            if isinstance(conversion, Transpose) and leaf == "bias":
                conversion = Copy(conversion.public)  # a vector has nothing to transpose
            return replace(
                conversion,
                public=f"{conversion.public}{suffix}".replace("{i}", number),
                params=tuple(f"{param}{suffix}".replace("{i}", number) for param in keys),
            )
    raise ConfigError(f"this format has no tensor for {name}")
