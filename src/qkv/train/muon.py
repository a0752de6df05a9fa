"""Muon: momentum whose matrices are made orthogonal before they are applied (Jordan et al. 2024).

All singular values of a step become about 1, so that every direction of a matrix learns at the
same pace. Torch's own version casts to bfloat16, which CPUs emulate slowly; this one computes in
float32, and all matrices of one shape in one batch.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# The quintic of Jordan et al.: steep at 0, so that small singular values come up in few steps.
A, B, C = 3.4445, -4.7750, 2.0315


class Muon(torch.optim.Optimizer):
    """For matrices only; everything else wants AdamW."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        super().__init__(matrices, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[matrix.shape].append(matrix)
            for matrices in by_shape.values():
                self._step(matrices, group)

    def _step(self, matrices: list[nn.Parameter], group: dict[str, float]) -> None:
        directions = torch.stack([self._direction(m, group["momentum"]) for m in matrices])
        rows, columns = directions.shape[-2:]
        size = group["lr"] * max(1.0, rows / columns) ** 0.5
        for matrix, turn in zip(matrices, orthogonal(directions, int(group["steps"])), strict=True):
            matrix.mul_(1.0 - group["lr"] * group["weight_decay"])
            matrix.add_(turn.to(matrix.dtype), alpha=-size)

    def _direction(self, matrix: nn.Parameter, momentum: float) -> Tensor:
        """Nesterov: the gradient a little further along the momentum."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(matrix, dtype=torch.float32)
        kept: Tensor = state["momentum"]
        gradient = matrix.grad.float()
        kept.lerp_(gradient, 1.0 - momentum)
        return gradient.lerp(kept, momentum)


def orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """The nearest matrices whose singular values are all about 1; (..., rows, columns)."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = A * x + (B * square + C * square @ square) @ x
    turned: Tensor = x.mT if tall else x
    return turned
