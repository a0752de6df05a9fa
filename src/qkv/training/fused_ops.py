"""Steps of a layer whose forward and backward passes are compiled, as functions of tensors.

Each equals a few operations of torch; what it keeps for the backward pass is said at each. Where
numbers are dropped, the same ones are drawn again from the seed.
"""

from typing import Any

import torch
from torch import Tensor

from qkv.kernels.training import LANES, Chance, Heads, training_kernels
from qkv.model.output import LazyLogits, LossAndGrads, TiedLogits, UntiedLogits

# FOLDED train/looped/scores: Scores whose loss and slopes are made together, a few rows at a
#   time.


def multiplied(x: Tensor, weights: list[Tensor], biases: list[Tensor | None]) -> Tensor:
    """x·Wᵀ + b for several matrices at once, side by side: (…, D) -> (…, all their rows)."""
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    given = [bias for bias in biases if bias is not None]
    bias = None if not given else given[0] if len(weights) == 1 else _side_by_side(weights, biases)
    out: Tensor = _Multiplied.apply(x.reshape(-1, x.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


def normed(x: Tensor, gain: Tensor, shift: Tensor | None, eps: float) -> Tensor:
    """LayerNorm over the last axis; keeps x and two numbers a row."""
    out: Tensor = _Normed.apply(x, gain, shift, eps)  # type: ignore[no-untyped-call]
    return out


def joined(x: Tensor, y: Tensor, chance: Chance) -> Tensor:
    """x + dropout(y); keeps nothing."""
    out: Tensor = _Joined.apply(x, y, chance)  # type: ignore[no-untyped-call]
    return out


def dropped(x: Tensor, chance: Chance) -> Tensor:
    """dropout(x); keeps nothing."""
    out: Tensor = _Joined.apply(None, x, chance)  # type: ignore[no-untyped-call]
    return out


def bent(x: Tensor, kind: int, chance: Chance) -> Tensor:
    """dropout(activation(x)); keeps x."""
    out: Tensor = _Bent.apply(x, kind, chance)  # type: ignore[no-untyped-call]
    return out


def mixed(heads: Heads, own: Tensor, other: Tensor | None) -> Tensor:
    """Attention of projected queries, keys and values (N, …) -> (N, H·E); keeps them and itself."""
    out: Tensor = _Mixed.apply(heads, own, other, heads.q_gain, heads.k_gain)  # type: ignore[no-untyped-call]
    return out


def product(a: Tensor, b: Tensor) -> Tensor:
    """a (M, K) · b (K, N), by our own loops where they are quicker, else torch's."""
    return training_kernels().multiply(a, b) if training_kernels().suits(a, b) else a @ b


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        context.save_for_backward(x, weight)
        context.biased = bias is not None
        out = product(x, weight.mT)
        return out if bias is None else out.add_(bias)

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = context.saved_tensors
        slope = upstream[0].contiguous()
        needs_x, needs_weight, _ = context.needs_input_grad
        return (
            product(slope, weight) if needs_x else None,
            product(slope.mT, x) if needs_weight else None,
            slope.sum(dim=0) if context.biased else None,
        )


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, gain: Tensor, shift: Tensor | None, eps: float) -> Tensor:
        x = x.contiguous()
        out, sizes = training_kernels().norm(x, gain, shift, eps)
        context.save_for_backward(x, gain, sizes)
        context.shifted = shift is not None
        return out

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, sizes = context.saved_tensors
        slope = upstream[0].contiguous()
        return *training_kernels().norm_back(x, gain, sizes, slope, context.shifted), None


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor | None, y: Tensor, chance: Chance) -> Tensor:
        context.chance, context.whole = chance, x is not None
        return training_kernels().join(
            None if x is None else x.contiguous(), y.contiguous(), chance
        )

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        slope = upstream[0].contiguous()
        kept = (
            training_kernels().join(None, slope, context.chance)
            if context.chance.dropped
            else slope
        )
        return slope if context.whole else None, kept, None


class _Bent(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, kind: int, chance: Chance) -> Tensor:
        context.save_for_backward(x)
        context.kind, context.chance = kind, chance
        return training_kernels().bend(x, kind, chance)

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = context.saved_tensors
        slope = upstream[0].contiguous()
        return training_kernels().bend_back(x, slope, context.kind, context.chance), None, None


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, heads: Heads, own: Tensor, other: Tensor | None, *gains: Tensor | None
    ) -> Tensor:
        out, logs = training_kernels().attend(heads, own, other)
        context.save_for_backward(own, other, out, logs)
        context.heads = heads
        return out

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        own, other, out, logs = context.saved_tensors
        slope = upstream[0].contiguous()
        return None, *training_kernels().attend_back(context.heads, own, other, out, logs, slope)


def _side_by_side(weights: list[Tensor], biases: list[Tensor | None]) -> Tensor:
    """The biases of all matrices; zeros where one has none."""
    return torch.cat(
        [
            weight.new_zeros(len(weight)) if bias is None else bias
            for weight, bias in zip(weights, biases, strict=True)
        ]
    )


class FusedTiedLogits(TiedLogits):
    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        return _quicker(super().lazy(states, table))


class FusedUntiedLogits(UntiedLogits):
    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        return _quicker(super().lazy(states, table))


def _quicker(factors: LazyLogits) -> LazyLogits:
    """With a quicker loss, if the passes know these."""
    if factors.cap is not None or factors.table.shape[1] % LANES:
        return factors
    return factors._replace(fused_loss=scored)


def scored(
    factors: LazyLogits, targets: Tensor, smoothing: float, agreement: float
) -> LossAndGrads:
    """The summed cross-entropy and its slopes; the scores of a few rows are all that is held."""
    states, table = factors.states.contiguous(), factors.table.contiguous()
    losses, to_states, to_table, to_bias = training_kernels().scored(
        states, table, factors.bias, targets.contiguous(), smoothing, agreement
    )
    return losses.sum(), to_states, to_table, to_bias
