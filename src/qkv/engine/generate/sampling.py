"""How the next token is chosen from its scores: steps that change them, then a choice.

Sampling((Temperature(0.8), TopP(0.95)))      draws
Sampling((), Greedy())                        always takes the likeliest
Sampling.of(temperature=0.7, top_k=40)        the usual steps in the usual order
"""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.engine.generate.strategies import (
    MinP,
    RepetitionPenalty,
    Step,
    Temperature,
    TopK,
    TopP,
)
from qkv.errors import QkvError

__all__ = [
    "GREEDY", "USUAL", "Draw", "Greedy", "MinP", "RepetitionPenalty", "Sampling", "Step",
    "Temperature", "TopK", "TopP", "draw", "stream_of",
]  # fmt: skip


@dataclass(frozen=True)
class Greedy:
    """The likeliest token; of equal ones the first."""

    def shares(self, scores: Tensor) -> Tensor:
        return torch.zeros_like(scores, dtype=torch.float64).index_fill_(0, scores.argmax(), 1.0)

    def pick(self, scores: Tensor, random: torch.Generator) -> int:
        return int(scores.argmax())


@dataclass(frozen=True)
class Draw:
    """A token at random, each as often as its score says."""

    def shares(self, scores: Tensor) -> Tensor:
        return scores.double().softmax(dim=0)

    def pick(self, scores: Tensor, random: torch.Generator) -> int:
        return draw(self.shares(scores), random)


@dataclass(frozen=True)
class Sampling:
    """The steps change the scores in their order; then one token is chosen."""

    steps: tuple[Step, ...] = ()
    choice: Greedy | Draw = Draw()

    @classmethod
    def of(
        cls,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
    ) -> "Sampling":
        """What is not given is left out; temperature 0 takes the likeliest token."""
        given = () if repetition_penalty is None else (RepetitionPenalty(repetition_penalty),)
        fewer = (
            *(() if temperature in (0, 1) else (Temperature(temperature),)),
            *(() if top_k is None else (TopK(top_k),)),
            *(() if top_p is None else (TopP(top_p),)),
            *(() if min_p is None else (MinP(min_p),)),
        )
        if temperature == 0:  # the likeliest token stays it, however few are left
            return cls(given, Greedy())
        return cls((*given, *fewer), Draw())

    @property
    def plain(self) -> bool:
        """Whether it is greedy and nothing else, so that many rows can be chosen at once."""
        return not self.steps and isinstance(self.choice, Greedy)

    def shares(self, scores: Tensor, ids: Tensor) -> Tensor:
        """The probability of each token to be chosen, (V,) float64."""
        return self.choice.shares(self._changed(scores, ids))

    def choose(self, scores: Tensor, ids: Tensor, random: torch.Generator) -> int:
        """The next token, given its scores (V,) and the ids so far (n,)."""
        return self.choice.pick(self._changed(scores, ids), random)

    def _changed(self, scores: Tensor, ids: Tensor) -> Tensor:
        for step in self.steps:
            scores = step.apply(scores, ids)
        return scores


GREEDY = Sampling((), Greedy())
USUAL = Sampling.of(temperature=0.8, top_p=0.95)


def stream_of(seed: int, number: int = 0) -> torch.Generator:
    """The random numbers of one answer: the same for the same seed and number, on any machine."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def draw(shares: Tensor, random: torch.Generator) -> int:
    """A token by its share (V,), which need not sum to 1."""
    below = shares.double().cumsum(dim=0)
    total = float(below[-1])
    if not (math.isfinite(total) and total > 0):
        raise QkvError("no token is left to draw: the sampling steps took every one away")
    place = float(torch.rand((), generator=random, dtype=torch.float64)) * total
    token = int(torch.searchsorted(below, place, right=True))
    return token if token < len(below) else int(shares.nonzero()[-1])
