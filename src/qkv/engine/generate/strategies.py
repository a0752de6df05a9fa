"""Ways to change what may be drawn: each is a value that changes one row of scores.

They are those of `transformers`, in whose order they are meant to be used: repetition penalty,
temperature, top-k, top-p, min-p.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.errors import UsageError

FEW = (128, 2048)  # the likeliest tokens have most of the probability: they are looked at first


class Step:
    """One change. A strategy of your own is a subclass of this."""

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        """The scores (V,) float32 of the next token, changed; −∞ takes a token away.

        ids (n,): prompt and answer so far. What is given is not to be written to.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RepetitionPenalty(Step):
    """Tokens that were there already become less likely (Keskar et al. 2019); 1 changes nothing."""

    x: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.x) and self.x > 0):
            raise UsageError(f"repetition penalty {self.x:g} must be above 0; 1 changes nothing")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        there = scores[ids]
        return scores.scatter(0, ids, torch.where(there < 0, there * self.x, there / self.x))


@dataclass(frozen=True)
class Temperature(Step):
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
class TopK(Step):
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
class TopP(Step):
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
class MinP(Step):
    """Only tokens with p times the probability of the likeliest, or more (Nguyen et al. 2024)."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise UsageError(f"min-p {self.p:g} must be between 0 and 1")

    def apply(self, scores: Tensor, ids: Tensor) -> Tensor:
        if self.p == 0:
            return scores
        return scores.masked_fill(scores < scores.max() + math.log(self.p), -torch.inf)
