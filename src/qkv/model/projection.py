"""Three ways to make queries, keys or values for every head: (B, T, D) -> (B, H, T, E)."""

import torch
from torch import Tensor, nn

from qkv.attention import project_factored, project_slices, split_heads


class ToHeads(nn.Linear):
    """The paper's projection: every head reads the whole input."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool) -> None:
        super().__init__(width, heads * head_width, bias)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(super().forward(x), self.heads)


class SlicesToHeads(nn.Module):
    """The notes' projection: head i reads slice i of the input through its own square matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, width // heads, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        return project_slices(x, self.weight)


class FactoredToHeads(nn.Module):
    """The notes' cheaper value: X·V_down·V_up, through a narrow space of the chosen rank."""

    def __init__(self, width: int, rank: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(width, rank))
        self.up = nn.Parameter(torch.empty(rank, heads * head_width))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(project_factored(x, self.down, self.up), self.heads)
