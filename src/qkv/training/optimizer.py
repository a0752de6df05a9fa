"""Who learns how: matrices, tables, and norms and biases each get the rule that suits them."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from qkv.model.config import Config, Count, Fraction, NonNegative
from qkv.model.embedding import TokenEmbedding
from qkv.model.output import TiedLogits

# FOLDED train/muon: Muon: momentum whose matrices are made orthogonal before they are applied
#   (Jordan et al. 2024).
#
#   All singular values of a step become about 1, so that every direction of a matrix learns
#   at the
#   same pace. Torch's own version casts to bfloat16, which CPUs emulate slowly; this one
#   computes in
#   float32, and all matrices of one shape in one batch.
# FOLDED train/schedule: How large a step is, as a share of the full rate, at each step of a run
#   of known length.

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


class AdamW(Config):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), fused, for everything."""

    copies: ClassVar[int] = 2  # of the weights, that it keeps: their mean slope and its square
    kind: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    weight_decay: NonNegative = 0.1

    def build(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        matrices, tables, rest = _groups(model)
        return [_adamw([*matrices, *tables], self, self.weight_decay), _adamw(rest, self, 0.0)]


class MuonAdamW(Config):
    """Muon for the matrices inside the layers, AdamW for tables, norms and biases."""

    copies: ClassVar[int] = 2  # at most
    kind: Literal["muon"] = "muon"
    matrix_lr: PositiveFloat = 0.02
    momentum: Fraction = 0.95
    matrix_weight_decay: NonNegative = 0.1
    lr: PositiveFloat = 5e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    weight_decay: NonNegative = 0.0

    def build(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        matrices, tables, rest = _groups(model)
        muon = Muon(matrices, self.matrix_lr, self.momentum, self.matrix_weight_decay)
        return [muon, _adamw(tables, self, self.weight_decay), _adamw(rest, self, 0.0)]


OptimizerConfig = Annotated[AdamW | MuonAdamW, Field(discriminator="kind")]


def _adamw(
    parameters: list[nn.Parameter], choice: AdamW | MuonAdamW, decay: float
) -> torch.optim.Optimizer:
    # An optimizer without parameters is an error in torch; a group of none is not.
    group = [{"params": parameters}]
    betas = (choice.beta1, choice.beta2)
    return torch.optim.AdamW(group, choice.lr, betas, weight_decay=decay, fused=True)


def _groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Matrices of the layers, tables of tokens and positions, and norms and biases."""
    matrices, tables, rest = list[nn.Parameter](), list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if not parameter.requires_grad:
            continue  # frozen
        if parameter.dim() < 2:
            rest.append(parameter)
        elif isinstance(owner, TokenEmbedding | TiedLogits) or name.endswith("position.weight"):
            tables.append(parameter)
        elif parameter.dim() == 2:
            matrices.append(parameter)
        else:
            rest.append(parameter)
    return matrices, tables, rest


Part = Annotated[float, Field(ge=0.0, le=1.0)]


class Schedule(Config):
    """Up from 0 in `warmup` steps, then as each kind says."""

    warmup: Count = 50

    def share(self, step: int, steps: int) -> float:
        """The share of the full rate at `step`, counted from 0, of `steps`."""
        warmup = min(self.warmup, steps // 10)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return self.after((step - warmup) / max(1, steps - warmup), step + 1, warmup)

    def after(self, progress: float, step: int, warmup: int) -> float:
        raise NotImplementedError


class Cosine(Schedule):
    """Down along half a cosine to `floor`."""

    kind: Literal["cosine"] = "cosine"
    floor: Part = 0.1

    def after(self, progress: float, step: int, warmup: int) -> float:
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


class Linear(Schedule):
    """Full until `hold` of the run is over, then straight down to 0.

    With hold = 0 it falls from the start; in between it is also called warm-up–stable–decay.
    """

    kind: Literal["linear"] = "linear"
    hold: Part = 0.4

    def after(self, progress: float, step: int, warmup: int) -> float:
        return min(1.0, (1.0 - progress) / max(1e-9, 1.0 - self.hold))


class InverseSqrt(Schedule):
    """Down with one over the root of the step, as in the paper."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"

    def after(self, progress: float, step: int, warmup: int) -> float:
        return math.sqrt(max(1, warmup) / max(1, step))


class Constant(Schedule):
    """Full to the end."""

    kind: Literal["constant"] = "constant"

    def after(self, progress: float, step: int, warmup: int) -> float:
        return 1.0


ScheduleConfig = Annotated[Cosine | Linear | InverseSqrt | Constant, Field(discriminator="kind")]
