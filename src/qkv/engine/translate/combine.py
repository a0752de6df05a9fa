"""The best translations of a text whose portions have several each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qkv.engine.hypothesis import Hypothesis


@dataclass(frozen=True)
class Combination:
    """One hypothesis for each portion, in order."""

    parts: tuple[Hypothesis, ...] = ()
    score: float = 0.0  # Σ log p ÷ tokens ^ penalty over all portions: of a single one, its rank
    total: float = 0.0  # Σ log p
    scored: int = 0  # tokens
    ended: bool = True

    def with_(self, part: Hypothesis, length_penalty: float) -> "Combination":
        """This one with the hypothesis of one more portion."""
        total, scored = self.total + part.score, self.scored + part.scored
        score = total / math.pow(scored, length_penalty)
        ended = self.ended and part.stop_reason == "end"
        return Combination((*self.parts, part), score, total, scored, ended)


def best_combinations(
    portions: Sequence[Sequence[Hypothesis]], best: int, length_penalty: float
) -> list[Combination]:
    """The `best` combinations by score, found portion by portion; best first."""
    found = [Combination()]
    for hypotheses in portions:
        longer = [way.with_(part, length_penalty) for way in found for part in hypotheses]
        longer.sort(key=lambda way: -way.score)  # stable: of equals, the first
        found = longer[:best]
    return found
