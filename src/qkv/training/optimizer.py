"""Optimizers and learning-rate schedules: Muon for matrices, AdamW for everything else.

Each parameter gets the update rule that suits it: the matrices inside the layers, the embeddings,
and the vectors (norms and biases), which are never decayed.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from qkv.model import Config, Count, Fraction, NonNegative, TiedLogits, TokenEmbedding

# The quintic of Jordan et al.: steep at 0, so that small singular values grow in few iterations.
A = 3.4445
B = -4.7750
C = 2.0315
QUINTIC = (A, B, C)


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalized (Jordan et al. 2024); for matrices only.

    All singular values of an update become about 1, so every direction of a matrix learns at the
    same pace. Torch's own version casts to bfloat16, which CPUs emulate slowly; this one computes
    in float32, and all matrices of one shape in one batch.
    """

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
        self.orthogonalize: Callable[[Tensor, int], Tensor] = newton_schulz  # or its kernel

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
        # A tall matrix has more rows than its rank: each would get too small an update.
        size = group["lr"] * max(1.0, rows / columns) ** 0.5
        momenta = self._nesterov_momenta(matrices, group["momentum"])
        updates = self.orthogonalize(momenta, int(group["steps"])).to(matrices[0].dtype)
        torch._foreach_mul_(matrices, 1.0 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(matrices, list(updates), alpha=-size)

    def _nesterov_momenta(self, matrices: list[Tensor], momentum: float) -> Tensor:
        """Each gradient, moved towards its updated momentum, (N, rows, columns)."""
        for matrix in matrices:
            if "momentum" not in self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix, dtype=torch.float32)
        momenta = [self.state[matrix]["momentum"] for matrix in matrices]
        grads = [matrix.grad.float() for matrix in matrices if matrix.grad is not None]
        torch._foreach_lerp_(momenta, grads, 1.0 - momentum)
        return torch.stack(torch._foreach_lerp(grads, momenta, momentum))


def newton_schulz(matrices: Tensor, steps: int) -> Tensor:
    """The nearest matrices whose singular values are all about 1; (N, rows, columns).

    Newton–Schulz: x ← A·x + (B·s + C·s²)·x with s = x·xᵀ, `steps` times.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    wide = x.shape[-1] >= 2 * x.shape[-2]
    iterate = _iterate_on_squares if wide else _iterate
    x = iterate(x, steps)
    if tall:
        x = x.mT
    return x


def _iterate(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        square = x @ x.mT
        square = torch.baddbmm(square, square, square, beta=B, alpha=C)
        x = torch.baddbmm(x, square, x, beta=A)
    return x


def _iterate_on_squares(x: Tensor, steps: int) -> Tensor:
    """The same for wide matrices: every step multiplies x from the left by a polynomial of s, so
    only the small squares are iterated, and the wide x is multiplied once at the end.
    """
    square = x @ x.mT
    product: Tensor | None = None
    for step in range(steps):
        factor = torch.baddbmm(square, square, square, beta=B, alpha=C)
        factor.diagonal(dim1=-2, dim2=-1).add_(A)
        product = factor if product is None else factor @ product
        if step + 1 < steps:
            square = factor @ square @ factor
    if product is None:
        return x
    return product @ x


class AdamW(Config):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019), fused, for everything."""

    states_per_weight: ClassVar[int] = 2  # means of the gradient and of its square
    kind: Literal["adamw"] = "adamw"
    lr: PositiveFloat = 1e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    weight_decay: NonNegative = 0.1

    def build(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        groups = parameter_groups(model)
        decayed = [*groups.matrices, *groups.embeddings]
        return [_adamw(decayed, self, self.weight_decay), _adamw(groups.vectors, self, 0.0)]


class MuonAdamW(Config):
    """Muon for the matrices inside the layers, AdamW for embeddings, norms and biases."""

    states_per_weight: ClassVar[int] = 2  # at most
    kind: Literal["muon"] = "muon"
    matrix_lr: PositiveFloat = 0.02
    momentum: Fraction = 0.95
    matrix_weight_decay: NonNegative = 0.1
    lr: PositiveFloat = 5e-3
    beta1: Fraction = 0.9
    beta2: Fraction = 0.95
    weight_decay: NonNegative = 0.0

    def build(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        groups = parameter_groups(model)
        return [
            Muon(groups.matrices, self.matrix_lr, self.momentum, self.matrix_weight_decay),
            _adamw(groups.embeddings, self, self.weight_decay),
            _adamw(groups.vectors, self, 0.0),
        ]


OptimizerConfig = Annotated[AdamW | MuonAdamW, Field(discriminator="kind")]


def _adamw(
    parameters: list[nn.Parameter], config: AdamW | MuonAdamW, weight_decay: float
) -> torch.optim.Optimizer:
    # Torch refuses an empty list of parameters, but not a group without any.
    group = [{"params": parameters}]
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(group, config.lr, betas, weight_decay=weight_decay, fused=True)


class ParameterGroups(NamedTuple):
    matrices: list[nn.Parameter]  # inside the layers
    embeddings: list[nn.Parameter]  # of tokens and positions
    vectors: list[nn.Parameter]  # norms and biases


def parameter_groups(model: nn.Module) -> ParameterGroups:
    """All trainable parameters, each in one group; frozen ones are left out."""
    groups = ParameterGroups([], [], [])
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if not parameter.requires_grad:
            continue
        if parameter.dim() < 2:
            groups.vectors.append(parameter)
        elif isinstance(owner, TokenEmbedding | TiedLogits) or name.endswith("position.weight"):
            groups.embeddings.append(parameter)
        elif parameter.dim() == 2:
            groups.matrices.append(parameter)
        else:
            groups.vectors.append(parameter)
    return groups


UnitInterval = Annotated[float, Field(ge=0.0, le=1.0)]


class Schedule(Config):
    """Linear warm-up from 0 in `warmup` steps, then a decay that depends on the kind."""

    warmup: Count = 50

    def scale(self, step: int, steps: int) -> float:
        """The factor of the learning rate at `step`, counted from 0, of `steps`."""
        warmup = min(self.warmup, steps // 10)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        progress = (step - warmup) / max(1, steps - warmup)
        return self.decay(progress, step + 1, warmup)

    def decay(self, progress: float, step: int, warmup: int) -> float:
        """The factor after the warm-up; `progress` goes from 0 to 1."""
        raise NotImplementedError


class Cosine(Schedule):
    """Half a cosine down to `floor`."""

    kind: Literal["cosine"] = "cosine"
    floor: UnitInterval = 0.1

    def decay(self, progress: float, step: int, warmup: int) -> float:
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


class Linear(Schedule):
    """Constant for the fraction `hold` of the run, then linear to 0 (warm-up–stable–decay).

    With hold = 0 it decays from the start.
    """

    kind: Literal["linear"] = "linear"
    hold: UnitInterval = 0.4

    def decay(self, progress: float, step: int, warmup: int) -> float:
        return min(1.0, (1.0 - progress) / max(1e-9, 1.0 - self.hold))


class InverseSqrt(Schedule):
    """Proportional to 1/√step, as in Vaswani et al. 2017."""

    kind: Literal["inverse_sqrt"] = "inverse_sqrt"

    def decay(self, progress: float, step: int, warmup: int) -> float:
        return math.sqrt(max(1, warmup) / max(1, step))


class Constant(Schedule):
    """No decay."""

    kind: Literal["constant"] = "constant"

    def decay(self, progress: float, step: int, warmup: int) -> float:
        return 1.0


ScheduleConfig = Annotated[Cosine | Linear | InverseSqrt | Constant, Field(discriminator="kind")]
