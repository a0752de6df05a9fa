"""Linear layers whose weights are fixed: stacked, and packed into the order they are read in."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# oneDNN packs a matrix for a number of rows; this one suits every number but 1.
ONEDNN_ROWS = 64
# Packing costs about as much as a few products with a few rows, or one with many.
MAX_UNPACKED_CALLS = 2
MIN_ROWS_TO_PACK = 256


class LinearLike(Protocol):
    """Anything with a weight (N, K) and a bias (N,) or None."""

    @property
    def weight(self) -> Tensor: ...
    @property
    def bias(self) -> Tensor | None: ...


class LinearWeights(NamedTuple):
    """A weight and a bias without a module around them."""

    weight: Tensor
    bias: Tensor | None


class BuildLinear(Protocol):
    """Makes one linear layer whose outputs are those of all the given ones, side by side."""

    def __call__(self, *layers: LinearLike) -> nn.Module: ...


def stack_biases(layers: Sequence[LinearLike]) -> Tensor | None:
    """All biases (sum of N,); zeros for a layer without one, if another has one."""
    if all(layer.bias is None for layer in layers):
        return None
    biases = list[Tensor]()
    for layer in layers:
        if layer.bias is None:
            biases.append(layer.weight.new_zeros(len(layer.weight)))
        else:
            biases.append(layer.bias)
    return _stack(biases)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0].detach()  # shared with the model, not copied
    return torch.cat(list(tensors)).detach()


class PostOp(NamedTuple):
    """What oneDNN applies to a product while it is still in registers, by oneDNN's names."""

    name: str
    algorithm: str = ""


NO_POST_OP = PostOp("none")


class DenseLinear(nn.Module):
    """x·Wᵀ + b in the model's precision, the matrix as it is."""

    def __init__(self, *layers: LinearLike) -> None:
        super().__init__()
        self.register_buffer("weight", _stack([layer.weight for layer in layers]))
        self.register_buffer("bias", stack_biases(layers))
        self.weight: Tensor
        self.bias: Tensor | None
        self.calls = 0  # with several rows

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def worth_packing(self, rows: int) -> bool:
        """Counts a call with so many rows; returns whether the matrix should be packed now.

        It should if the rows are many, or a few come for the third time: not for one short prompt.
        """
        self.calls += 1
        return self.calls > MAX_UNPACKED_CALLS or rows >= MIN_ROWS_TO_PACK

    def matvec(self, row: Tensor, factor: float) -> Tensor:
        """row·Wᵀ × factor + b of a single row, (K,) -> (N,)."""
        if self.bias is None:
            return torch.mv(self.weight, row).mul_(factor)
        return torch.addmv(self.bias, self.weight, row, alpha=factor)

    def matvec_add(self, x: Tensor, row: Tensor) -> Tensor:
        """x + row·Wᵀ + b of a single row."""
        out = torch.addmv(x, self.weight, row)
        if self.bias is None:
            return out
        return out.add_(self.bias)


class PackedLinear(DenseLinear):
    """Also packs the matrix into oneDNN's own layout, which is faster for several rows.

    oneDNN's operation has no gradient; where one may be needed it is not used.
    """

    def __init__(self, *layers: LinearLike) -> None:
        super().__init__(*layers)
        self.packed: Tensor | None = None

    @staticmethod
    def is_available() -> bool:
        """Whether this build of torch has oneDNN."""
        return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_activated(x, NO_POST_OP, nn.Identity())

    def forward_activated(self, x: Tensor, post_op: PostOp, activation: nn.Module) -> Tensor:
        """activation(x·Wᵀ + b); `post_op` is the same activation as oneDNN names it."""
        rows = x.numel() // x.shape[-1]
        if rows < 2 or torch.is_grad_enabled() or not self._pack(rows):
            out: Tensor = activation(F.linear(x, self.weight, self.bias))
            return out
        fused: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, post_op.name, [], post_op.algorithm
        )
        return fused

    def _pack(self, rows: int) -> bool:
        """Packs the matrix if that is worth it for so many rows; returns whether it is packed."""
        if self.packed is None and self.worth_packing(rows):
            self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, ONEDNN_ROWS)
        return self.packed is not None
