"""Products with a matrix that is known beforehand."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(Protocol):
    """What a product is made of: a weight (N, K) and a bias (N,) or none."""

    @property
    def weight(self) -> Tensor: ...
    @property
    def bias(self) -> Tensor | None: ...


class Build(Protocol):
    """Makes the product of all these layers' matrices, one above the other, with what is given."""

    def __call__(self, *layers: Layer) -> nn.Module: ...


class Matrix(NamedTuple):
    """A layer that is no module."""

    weight: Tensor
    bias: Tensor | None


def bias_of(layers: Sequence[Layer]) -> Tensor | None:
    """The biases one above the other; a layer without one has zeros, if another has."""
    if all(layer.bias is None for layer in layers):
        return None
    each = [layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
            for layer in layers]  # fmt: skip
    return _stacked(each)


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    return (parts[0] if len(parts) == 1 else torch.cat(list(parts))).detach()


class Applied(NamedTuple):
    """What oneDNN applies to a product while it is at hand, in its own words."""

    name: str
    kind: str = ""


NOTHING = Applied("none")


class Plain(nn.Module):
    """x·Wᵀ + b, the matrix as it is."""

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        self.register_buffer("weight", _stacked([layer.weight for layer in layers]))
        self.register_buffer("bias", bias_of(layers))
        self.weight: Tensor
        self.bias: Tensor | None
        self.needed = 0  # times that several rows came

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def worth_packing(self, rows: int) -> bool:
        """Whether the matrix should lie as it is read best, now that it meets so many rows: if they
        are many, or a few come for the third time. So not for a single short prompt.
        """
        self.needed += 1
        return self.needed > OFTEN or rows >= MANY

    def one(self, row: Tensor, factor: float) -> Tensor:
        """row·Wᵀ × factor + b of a single row, (K,) -> (N,)."""
        if self.bias is None:
            return torch.mv(self.weight, row).mul_(factor)
        return torch.addmv(self.bias, self.weight, row, alpha=factor)

    def one_more(self, x: Tensor, row: Tensor) -> Tensor:
        """x + row·Wᵀ + b of a single row."""
        more = torch.addmv(x, self.weight, row)
        return more if self.bias is None else more.add_(self.bias)


class Packed(Plain):
    """The matrix also in the order that oneDNN reads it in, which is quicker for several rows.

    There is no slope through it; where one may be wanted it is not used.
    """

    def __init__(self, *layers: Layer) -> None:
        super().__init__(*layers)
        self.packed: Tensor | None = None

    @staticmethod
    def works() -> bool:
        """Whether this build of torch has oneDNN."""
        return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        return self.bent(x, NOTHING, nn.Identity())

    def bent(self, x: Tensor, how: Applied, activation: nn.Module) -> Tensor:
        """activation(x·Wᵀ + b); `how` is what oneDNN calls that activation."""
        rows = x.numel() // x.shape[-1]
        if rows < 2 or torch.is_grad_enabled() or not self._pack(rows):
            bent: Tensor = activation(F.linear(x, self.weight, self.bias))
            return bent
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, how.name, [], how.kind
        )
        return product

    def _pack(self, rows: int) -> bool:
        """Whether the matrix lies packed, now that it meets so many rows."""
        if self.packed is None and self.worth_packing(rows):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, ROWS)
        return self.packed is not None


ROWS = 64  # that the order is made for; it suits any number of them but one
OFTEN = 2
MANY = 256
