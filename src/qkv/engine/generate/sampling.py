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

from qkv.errors import QkvError, UsageError

# FOLDED engine/generate/strategies: Ways to change what may be drawn: each is a value that
#   changes one row of scores.
#
#   They are those of `transformers`, in whose order they are meant to be used: repetition
#   penalty,
#   temperature, top-k, top-p, min-p.

FEW = (128, 2048)  # the likeliest tokens have most of the probability: they are looked at first


class LogitsProcessor:
    """One change. A strategy of your own is a subclass of this."""

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        """The scores (V,) float32 of the next token, changed; −∞ takes a token away.

        ids (n,): prompt and answer so far. What is given is not to be written to.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RepetitionPenalty(LogitsProcessor):
    """Tokens that were there already become less likely (Keskar et al. 2019); 1 changes nothing."""

    x: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.x) and self.x > 0):
            raise UsageError(f"repetition penalty {self.x:g} must be above 0; 1 changes nothing")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        there = scores[ids]
        return scores.scatter(0, ids, torch.where(there < 0, there * self.x, there / self.x))


@dataclass(frozen=True)
class Temperature(LogitsProcessor):
    """Below 1 the likely becomes likelier, above 1 less so."""

    t: float

    def __post_init__(self) -> None:
        if self.t == 0:
            raise UsageError("temperature 0 divides by nothing; use Greedy() instead of a draw")
        if not (math.isfinite(self.t) and self.t > 0):
            raise UsageError(f"temperature {self.t:g} must be 0, which is greedy, or above")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        return scores / self.t


@dataclass(frozen=True)
class TopK(LogitsProcessor):
    """Only the k likeliest tokens (Fan et al. 2018), and any that are as likely as the last."""

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise UsageError(f"top-k {self.k} must be a whole number of 1 or more")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.k >= len(scores):
            return scores
        return scores.masked_fill(scores < scores.topk(self.k).values[-1], -torch.inf)


@dataclass(frozen=True)
class TopP(LogitsProcessor):
    """Only the likeliest tokens that together have the probability p (Holtzman et al. 2019)."""

    p: float

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise UsageError(f"top-p {self.p:g} must be above 0 and at most 1")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.p == 1:
            return scores
        shares, V = scores.softmax(dim=0), len(scores)
        for looked_at in (*(few for few in FEW if few < V), V):
            best, places = shares.topk(looked_at)
            above = best.cumsum(dim=0) - best  # what the likelier ones have together
            if above[-1] >= self.p or looked_at == V:
                break
        kept = places[: int((above < self.p).sum())]  # `above` only grows
        return torch.full_like(scores, -torch.inf).scatter(0, kept, scores[kept])


@dataclass(frozen=True)
class MinP(LogitsProcessor):
    """Only tokens with p times the probability of the likeliest, or more (Nguyen et al. 2024)."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise UsageError(f"min-p {self.p:g} must be between 0 and 1")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.p == 0:
            return scores
        return scores.masked_fill(scores < scores.max() + math.log(self.p), -torch.inf)


@dataclass(frozen=True)
class Greedy:
    """The likeliest token; of equal ones the first."""

    def shares(self, scores: Tensor) -> Tensor:
        return torch.zeros_like(scores, dtype=torch.float64).index_fill_(0, scores.argmax(), 1.0)

    def pick(self, scores: Tensor, random: torch.Generator) -> int:
        return int(scores.argmax())


@dataclass(frozen=True)
class Multinomial:
    """A token at random, each as often as its score says."""

    def shares(self, scores: Tensor) -> Tensor:
        return scores.double().softmax(dim=0)

    def pick(self, scores: Tensor, random: torch.Generator) -> int:
        return draw(self.shares(scores), random)


@dataclass(frozen=True)
class Sampling:
    """The steps change the scores in their order; then one token is chosen."""

    processors: tuple[LogitsProcessor, ...] = ()
    strategy: Greedy | Multinomial = Multinomial()

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
        return cls((*given, *fewer), Multinomial())

    @property
    def plain(self) -> bool:
        """Whether it is greedy and nothing else, so that many rows can be chosen at once."""
        return not self.processors and isinstance(self.strategy, Greedy)

    def shares(self, scores: Tensor, ids: Tensor) -> Tensor:
        """The probability of each token to be chosen, (V,) float64."""
        return self.strategy.shares(self._changed(scores, ids))

    def choose(self, scores: Tensor, ids: Tensor, random: torch.Generator) -> int:
        """The next token, given its scores (V,) and the ids so far (n,)."""
        return self.strategy.pick(self._changed(scores, ids), random)

    def _changed(self, scores: Tensor, ids: Tensor) -> Tensor:
        for step in self.processors:
            scores = step.apply(scores, ids)
        return scores


GREEDY = Sampling((), Greedy())

DEFAULT_SAMPLING = Sampling.of(temperature=0.8, top_p=0.95)


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
