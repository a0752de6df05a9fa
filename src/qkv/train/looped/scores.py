"""Scores whose loss and slope are made in one pass over them."""

from torch import Tensor

from qkv.model.output import Factors, OwnScores, TiedScores
from qkv.native.learning import passes


class LoopedTiedScores(TiedScores):
    def factors(self, states: Tensor, table: Tensor) -> Factors:
        return super().factors(states, table)._replace(judge=judged)


class LoopedOwnScores(OwnScores):
    def factors(self, states: Tensor, table: Tensor) -> Factors:
        return super().factors(states, table)._replace(judge=judged)


def judged(scores: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of scores (N, V), and its slope in their place."""
    losses = passes().surprise(scores, targets, smoothing)
    return losses.sum(), scores
