"""A target that a search has written, and how it compares with others."""

import math
from dataclasses import dataclass
from typing import Literal

from qkv.errors import QkvError


@dataclass(frozen=True)
class Hypothesis:
    """One target of a source, with how probable the model finds it."""

    ids: tuple[int, ...]  # without start and end
    score: float  # Σ log p of its tokens, the end included if it was reached
    rank: float  # what hypotheses are compared by: the score, shared out over the scored tokens
    stop_reason: Literal["end", "length"]

    @property
    def scored(self) -> int:
        """How many tokens the score is of, the end included if it was reached."""
        return len(self.ids) + (self.stop_reason == "end")

    @classmethod
    def of(cls, tokens: list[int], score: float, end: int, length_penalty: float) -> "Hypothesis":
        """From everything that was scored, which closes with `end` if it was reached."""
        if not math.isfinite(score):
            raise QkvError(
                f"the model gives a target the score {score}, but log-probabilities are finite; "
                f"its weights are damaged"
            )
        ended = tokens[-1] == end
        rank = score / len(tokens) ** length_penalty
        ids = tuple(tokens[:-1] if ended else tokens)
        return cls(ids, score, rank, "end" if ended else "length")
