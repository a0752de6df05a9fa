"""Muon: momentum whose matrices are made orthogonal before they are applied (Jordan et al. 2024).

All singular values of a step become about 1, so that every direction of a matrix learns at the
same pace. Torch's own version casts to bfloat16, which CPUs emulate slowly; this one computes in
float32, and all matrices of one shape in one batch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

# The quintic of Jordan et al.: steep at 0, so that small singular values come up in few steps.
QUINTIC = A, B, C = 3.4445, -4.7750, 2.0315


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
        self.turn: Callable[[Tensor, int], Tensor] = orthogonal  # or what equals it

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[matrix.shape].append(matrix)
            for matrices in by_shape.values():
                self._step(matrices, group)

    def _step(self, matrices: list[Tensor], group: dict[str, float]) -> None:
        rows, columns = matrices[0].shape
        size = group["lr"] * max(1.0, rows / columns) ** 0.5
        turns = self.turn(self._directions(matrices, group["momentum"]), int(group["steps"]))
        torch._foreach_mul_(matrices, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, list(turns.to(matrices[0].dtype)), alpha=-size)

    def _directions(self, matrices: list[Tensor], momentum: float) -> Tensor:
        """Nesterov: each gradient a little further along its momentum, (N, rows, columns)."""
        for matrix in matrices:
            if "momentum" not in self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix, dtype=torch.float32)
        kept = [self.state[matrix]["momentum"] for matrix in matrices]
        gradients = [matrix.grad.float() for matrix in matrices if matrix.grad is not None]
        torch._foreach_lerp_(kept, gradients, 1.0 - momentum)
        return torch.stack(torch._foreach_lerp(gradients, kept, momentum))


def orthogonal(matrices: Tensor, steps: int) -> Tensor:
    """The nearest matrices whose singular values are all about 1; (N, rows, columns).

    Newton–Schulz: x ← A·x + (B·s + C·s²)·x with s = x·xᵀ, so many steps.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = _by_squares(x, steps) if x.shape[-1] >= 2 * x.shape[-2] else _directly(x, steps)
    turned: Tensor = x.mT if tall else x
    return turned


def _directly(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        square = x @ x.mT
        square = torch.baddbmm(square, square, square, beta=B, alpha=C)
        x = torch.baddbmm(x, square, x, beta=A)
    return x


def _by_squares(x: Tensor, steps: int) -> Tensor:
    """The same for wide matrices: every step multiplies x from the left by a polynomial of s, so
    only the small squares are worked on, and the wide x is multiplied once at the end.
    """
    square, product = x @ x.mT, None
    for step in range(steps):
        factor = torch.baddbmm(square, square, square, beta=B, alpha=C)
        factor.diagonal(dim1=-2, dim2=-1).add_(A)
        product = factor if product is None else factor @ product
        if step + 1 < steps:
            square = factor @ square @ factor
    return x if product is None else product @ x
