"""Products with a matrix that is known beforehand."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Build = Callable[[Tensor, Tensor | None], nn.Module]  # weight (N, K), bias (N,) -> x·Wᵀ + b


class Plain(nn.Module):
    """x·Wᵀ + b, the matrix as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach())
        self.register_buffer("bias", None if bias is None else bias.detach())
        self.weight: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Packed(Plain):
    """The matrix also in the order that oneDNN reads it in, which is quicker for a few rows.

    A single row is quickest with the matrix as it is.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, FEW)

    @staticmethod
    def works() -> bool:
        """Whether this build of torch has oneDNN."""
        return torch.backends.mkldnn.is_available()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.numel() // x.shape[-1]
        if 1 < rows <= FEW:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return F.linear(x, self.weight, self.bias)


FEW = 64  # rows up to which packing was measured to help
