"""Beam search: of all continuations of a sentence's beams the best survive.

A continuation that ends is set aside if it is among the best `beams`; the best `beams` that do not
end go on. A sentence is done when none of those can still reach the worst target it would give:
a sum of logarithms only falls, and no target is longer than the limit.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from qkv.errors import QkvError, UsageError
from qkv.shapes import expect

# FOLDED engine/continuations: The best continuations of all beams of a sentence, without
#   sorting the whole vocabulary.
#
#   The vocabulary is cut into blocks. The n best tokens stand in the n blocks with the best
#   maxima, so
#   only those blocks are looked at closely. Equal sums go by the earlier beam, then the lower
#   token.
# FOLDED engine/hypothesis: A target that a search has written, and how it compares with others.
# FOLDED engine/rules: What a search may write, and how it compares what it has written.

BLOCK = 64


def best_continuations(logs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest sums of a beam's score and a token's log p, best first, and where they are.

    logs (B, beams, V), scores (B, beams) -> sums, beams and tokens, each (B, count). `count` is at
    most twice the number of beams; what there is too little of is filled up with sums of −∞.
    """
    n = expect(logs=(logs, "B beams V"), scores=(scores, "B beams"))
    V, blocks = n["V"], -(-n["V"] // BLOCK)
    maxima = (_maxima(logs) + scores[:, :, None]).flatten(1)  # (B, beams·blocks)
    near = _first(maxima, min(count, maxima.shape[1])).sort(dim=1).values  # (B, near)

    beam, offset = near // blocks, near % blocks * BLOCK
    token = offset[:, :, None] + torch.arange(BLOCK, device=logs.device)  # (B, near, BLOCK)
    place = beam[:, :, None] * V + token.clamp(max=V - 1)
    sums = logs.flatten(1).gather(1, place.flatten(1)).view_as(place)
    sums = sums + scores.gather(1, beam)[:, :, None]
    sums = sums.masked_fill(token >= V, -torch.inf).flatten(1)  # (B, near·BLOCK)

    best = _first(sums, count)
    place = place.flatten(1).gather(1, best)
    return sums.gather(1, best), place // V, place % V


def _maxima(logs: Tensor) -> Tensor:
    """The largest log p of each block, (B, beams, blocks); the last block may be shorter."""
    whole = logs.shape[-1] // BLOCK * BLOCK
    parts = [logs[..., :whole].reshape(*logs.shape[:-1], -1, BLOCK).amax(dim=-1)] if whole else []
    if whole < logs.shape[-1]:
        parts.append(logs[..., whole:].amax(dim=-1, keepdim=True))
    return torch.cat(parts, dim=-1)


def _first(values: Tensor, count: int) -> Tensor:
    """Where the `count` largest of each row stand, largest first; of equal ones the earlier first.

    `topk` leaves the order of equal values open, so it is given whole numbers that differ: the bits
    of the float, turned so that they sort as it does, above the place counted from behind.
    """
    values = values.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)  # NaN shows
    bits = (values + 0.0).view(torch.int32)  # −0 becomes 0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    behind = torch.arange(values.shape[1] - 1, -1, -1, device=values.device)
    return ((bits.long() << 32) | behind).topk(count, dim=1).indices


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


HIGHEST = 10  # powers of a length beyond this say nothing more, and overflow


@dataclass(frozen=True)
class Rules:
    """The same for every source of a search."""

    start: int
    end: int
    forbidden: tuple[int, ...]
    beams: int
    best: int
    length_penalty: float
    before: tuple[int, ...] = ()

    def check(self, vocabulary: int) -> None:
        """Raise a UsageError if no search can go by these rules."""
        if self.beams < 1:
            raise UsageError(f"beams={self.beams}: a search follows 1 or more")
        if not 1 <= self.best <= self.beams:
            raise UsageError(
                f"best={self.best} of beams={self.beams}: ask for 1 to {self.beams} targets, "
                f"or for more beams"
            )
        if not 0.0 <= self.length_penalty <= HIGHEST:
            raise UsageError(
                f"length_penalty={self.length_penalty} must be 0 (compare sums), "
                f"1 (compare means) or any number up to {HIGHEST}"
            )
        for name in ("start", "end"):
            self._expect_token(name, getattr(self, name), vocabulary)
        for name in ("forbidden", "before"):
            for token in getattr(self, name):
                self._expect_token(name, token, vocabulary)
        if self.end in self.forbidden:
            raise UsageError(f"end={self.end} is forbidden, so no target could end; allow it")

    def _expect_token(self, name: str, token: int, vocabulary: int) -> None:
        if not 0 <= token < vocabulary:
            raise UsageError(
                f"{name}={token} is not a token; the model's targets have 0 to {vocabulary - 1}"
            )


class Survivors:
    """The live beams of each sentence and, apart from them, its best targets so far."""

    def __init__(self, limits: Tensor, longest: int, rules: Rules) -> None:
        B, beams, device = len(limits), rules.beams, limits.device
        self.rules, self.limits, self.step = rules, limits, 0
        self.tokens = torch.full((B, beams), rules.start, device=device)
        self.parents = torch.zeros(B, beams, dtype=torch.long, device=device)
        self.done = torch.zeros(B, dtype=torch.bool, device=device)
        self.scores = torch.full((B, beams), -torch.inf, device=device)
        self.scores[:, 0] = 0.0  # all beams begin alike; only one of them may branch
        self.ids = torch.zeros(B, beams, longest, dtype=torch.long, device=device)
        self.best = Best(B, rules.best, longest, device)

    def choose(self, logs: Tensor) -> None:
        beams, rules = self.rules.beams, self.rules
        sums, beam, token = best_continuations(logs, self.scores, 2 * beams)
        ids = _pick(self.ids, beam)  # (B, 2·beams, longest)
        ids[:, :, self.step] = token
        self.step += 1

        # At most one continuation of a beam ends, so at least `beams` of them go on.
        ends = (token == rules.end) & (sums > -torch.inf)
        live = ends.int().argsort(dim=1, stable=True)[:, :beams]
        last = self.limits == self.step
        closed = ends & (torch.arange(2 * beams, device=logs.device) < beams)
        closed = closed.scatter(1, live, last[:, None].expand_as(live))
        ranks = (sums / self.step**rules.length_penalty).masked_fill(~closed, -torch.inf)
        self.best.add(ranks, sums, self.step, ids)

        self.scores = sums.gather(1, live)
        reachable = self.scores[:, 0] / self.limits**rules.length_penalty
        self.done = last | (self.best.ranks[:, -1] >= reachable)
        self.scores = self.scores.masked_fill(self.done[:, None], -torch.inf)
        self.tokens, self.ids = token.gather(1, live), _pick(ids, live)
        self.parents = beam.gather(1, live)

    def take(self, sentences: Tensor) -> None:
        for name in ("tokens", "parents", "limits", "done", "scores", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))
        self.best.take(sentences)

    def hypotheses(self) -> list[list[Hypothesis]]:
        return self.best.hypotheses(self.rules.end, self.rules.length_penalty)


class Best:
    """The best targets of each sentence so far, best first; a rank of −∞ marks an empty place."""

    def __init__(self, B: int, best: int, longest: int, device: torch.device) -> None:
        self.ranks = torch.full((B, best), -torch.inf, device=device)
        self.scores = torch.zeros(B, best, device=device)
        self.counts = torch.zeros(B, best, dtype=torch.long, device=device)
        self.ids = torch.zeros(B, best, longest, dtype=torch.long, device=device)

    def add(self, ranks: Tensor, scores: Tensor, count: int, ids: Tensor) -> None:
        """Keep what is better than the worst of these; of equals, what was there first."""
        ranks = torch.cat((self.ranks, ranks), dim=1)
        self.ranks, order = ranks.sort(dim=1, descending=True, stable=True)
        best = self.scores.shape[1]
        self.ranks, order = self.ranks[:, :best], order[:, :best]
        counts = torch.cat((self.counts, torch.full_like(scores, count, dtype=torch.long)), dim=1)
        self.counts = counts.gather(1, order)
        self.scores = torch.cat((self.scores, scores), dim=1).gather(1, order)
        self.ids = _pick(torch.cat((self.ids, ids), dim=1), order)

    def take(self, sentences: Tensor) -> None:
        for name in ("ranks", "scores", "counts", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def hypotheses(self, end: int, length_penalty: float) -> list[list[Hypothesis]]:
        state = (t.tolist() for t in (self.ranks, self.scores, self.counts, self.ids))
        return [
            [
                Hypothesis.of(ids[:count], score, end, length_penalty)
                for rank, score, count, ids in zip(*sentence, strict=True)
                if rank != -torch.inf
            ]
            for sentence in zip(*state, strict=True)
        ]


def _pick(ids: Tensor, beams: Tensor) -> Tensor:
    """ids (B, W, longest), beams (B, n) -> the ids of these beams, (B, n, longest)."""
    return ids.gather(1, beams[:, :, None].expand(-1, -1, ids.shape[-1]))
