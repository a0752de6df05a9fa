"""Scores whose loss and slopes are made together, a few rows at a time."""

from typing import Any

import torch
from torch import Tensor

from qkv.model.output import Factors, OwnScores, TiedScores
from qkv.native.learning import LANES, passes


class LoopedTiedScores(TiedScores):
    def factors(self, states: Tensor, table: Tensor) -> Factors:
        return _quicker(super().factors(states, table))


class LoopedOwnScores(OwnScores):
    def factors(self, states: Tensor, table: Tensor) -> Factors:
        return _quicker(super().factors(states, table))


def _quicker(factors: Factors) -> Factors:
    """With a quicker loss, if the passes know these."""
    if factors.cap is not None or factors.table.shape[1] % LANES:
        return factors
    return factors._replace(loss=scored)


def scored(factors: Factors, targets: Tensor, smoothing: float, agreement: float) -> Tensor:
    """The summed cross-entropy; the scores of a few rows are all that is ever held."""
    given = factors.states, factors.table, factors.bias, targets, smoothing, agreement
    total: Tensor = _Scored.apply(*given)  # type: ignore[no-untyped-call]
    return total


class _Scored(torch.autograd.Function):
    """Forward makes loss and slopes; backward only scales them."""

    @staticmethod
    def forward(
        context: Any,
        states: Tensor,
        table: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        agreement: float,
    ) -> Tensor:
        given = states.contiguous(), table.contiguous(), bias, targets.contiguous()
        losses, *slopes = passes().scored(*given, smoothing, agreement)
        context.save_for_backward(*slopes)
        return losses.sum()

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        slopes = context.saved_tensors
        return *(None if s is None else s * upstream[0] for s in slopes), None, None, None
