"""Scores whose loss and slopes are made together, a few rows at a time."""

from torch import Tensor

from qkv.model.output import Factors, LossAndSlopes, OwnScores, TiedScores
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
    return factors._replace(quicker=scored)


def scored(factors: Factors, targets: Tensor, smoothing: float, agreement: float) -> LossAndSlopes:
    """The summed cross-entropy and its slopes; the scores of a few rows are all that is held."""
    states, table = factors.states.contiguous(), factors.table.contiguous()
    losses, to_states, to_table, to_bias = passes().scored(
        states, table, factors.bias, targets.contiguous(), smoothing, agreement
    )
    return losses.sum(), to_states, to_table, to_bias
