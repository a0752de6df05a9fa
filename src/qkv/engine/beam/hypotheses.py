"""The beams of a search: which continuations survive, and which finished targets are best.

A continuation that ends with EOS is set aside if it is among the best `beams`; the best `beams`
that do not end go on. A source is done when none of those can still reach the worst target it
would return: a sum of log-probabilities only falls, and no target is longer than the limit.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from qkv.errors import QkvError, UsageError
from qkv.shapes import expect

BLOCK = 64  # tokens whose maximum is taken together

MAX_LENGTH_PENALTY = 10  # larger powers of a length change nothing and overflow


@dataclass(frozen=True)
class Hypothesis:
    """One target of a source, with its log-probability."""

    ids: tuple[int, ...]  # without BOS and EOS
    score: float  # Σ log p of its tokens, EOS included if it was reached
    rank: float  # what hypotheses are compared by: score / length ** length_penalty
    stop_reason: Literal["end", "length"]

    @property
    def scored_tokens(self) -> int:
        """How many tokens the score is a sum over, EOS included if it was reached."""
        return len(self.ids) + (self.stop_reason == "end")

    @classmethod
    def of(cls, tokens: list[int], score: float, eos: int, length_penalty: float) -> "Hypothesis":
        """From all generated tokens, EOS included if it was reached."""
        if not math.isfinite(score):
            raise QkvError(
                f"the model gives a target the score {score}, but log-probabilities are finite; "
                f"its weights are damaged"
            )
        rank = score / len(tokens) ** length_penalty
        if tokens[-1] == eos:
            return cls(tuple(tokens[:-1]), score, rank, "end")
        return cls(tuple(tokens), score, rank, "length")


@dataclass(frozen=True)
class SearchConfig:
    """What is the same for every source of a search."""

    bos: int
    eos: int
    forbidden: tuple[int, ...]
    beams: int
    best: int
    length_penalty: float
    prefix: tuple[int, ...] = ()

    def check(self, vocabulary: int) -> None:
        """Raises a UsageError if no search is possible with this config."""
        if self.beams < 1:
            raise UsageError(f"beams={self.beams} must be 1 or more")
        if not 1 <= self.best <= self.beams:
            raise UsageError(
                f"best={self.best} of beams={self.beams}: ask for 1 to {self.beams} targets, "
                f"or for more beams"
            )
        if not 0.0 <= self.length_penalty <= MAX_LENGTH_PENALTY:
            raise UsageError(
                f"length_penalty={self.length_penalty} must be 0 (compare sums), "
                f"1 (compare means) or any number up to {MAX_LENGTH_PENALTY}"
            )
        tokens = [("bos", self.bos), ("eos", self.eos)]
        tokens += [("forbidden", token) for token in self.forbidden]
        tokens += [("prefix", token) for token in self.prefix]
        for name, token in tokens:
            if not 0 <= token < vocabulary:
                raise UsageError(
                    f"{name}={token} is not a token; the model's targets have 0 to {vocabulary - 1}"
                )
        if self.eos in self.forbidden:
            raise UsageError(f"eos={self.eos} is forbidden, so no target could end; allow it")


class BeamState:
    """Implements `SearchState`: the live beams of each source, and its best targets so far."""

    def __init__(self, limits: Tensor, longest: int, config: SearchConfig) -> None:
        B = len(limits)
        beams = config.beams
        device = limits.device
        self.config = config
        self.limits = limits
        self.step = 0
        self.tokens = torch.full((B, beams), config.bos, device=device)
        self.parents = torch.zeros(B, beams, dtype=torch.long, device=device)
        self.done = torch.zeros(B, dtype=torch.bool, device=device)
        self.scores = torch.full((B, beams), -torch.inf, device=device)
        self.scores[:, 0] = 0.0  # all beams start alike, so only one of them may branch
        self.ids = torch.zeros(B, beams, longest, dtype=torch.long, device=device)
        self.best = BestHypotheses(B, config.best, longest, device)

    def extend(self, logs: Tensor) -> None:
        beams = self.config.beams
        penalty = self.config.length_penalty
        sums, beam, token = best_continuations(logs, self.scores, 2 * beams)
        ids = _gather_beams(self.ids, beam)  # (B, 2·beams, longest)
        ids[:, :, self.step] = token
        self.step += 1

        # At most one continuation of a beam ends, so at least `beams` of them go on.
        ends = (token == self.config.eos) & (sums > -torch.inf)
        live = ends.int().argsort(dim=1, stable=True)[:, :beams]
        last = self.limits == self.step
        closed = ends & (torch.arange(2 * beams, device=logs.device) < beams)
        closed = closed.scatter(1, live, last[:, None].expand_as(live))
        ranks = (sums / self.step**penalty).masked_fill(~closed, -torch.inf)
        self.best.add(ranks, sums, self.step, ids)

        self.scores = sums.gather(1, live)
        reachable = self.scores[:, 0] / self.limits**penalty
        self.done = last | (self.best.ranks[:, -1] >= reachable)
        self.scores = self.scores.masked_fill(self.done[:, None], -torch.inf)
        self.tokens = token.gather(1, live)
        self.ids = _gather_beams(ids, live)
        self.parents = beam.gather(1, live)

    def select(self, sentences: Tensor) -> None:
        for name in ("tokens", "parents", "limits", "done", "scores", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))
        self.best.select(sentences)

    def hypotheses(self) -> list[list[Hypothesis]]:
        return self.best.hypotheses(self.config.eos, self.config.length_penalty)


class BestHypotheses:
    """The best targets of each source so far, best first; empty slots have a rank of −∞."""

    def __init__(self, B: int, best: int, longest: int, device: torch.device) -> None:
        self.ranks = torch.full((B, best), -torch.inf, device=device)
        self.scores = torch.zeros(B, best, device=device)
        self.counts = torch.zeros(B, best, dtype=torch.long, device=device)
        self.ids = torch.zeros(B, best, longest, dtype=torch.long, device=device)

    def add(self, ranks: Tensor, scores: Tensor, count: int, ids: Tensor) -> None:
        """Keeps what ranks above the worst; of equal ones, what was there first."""
        best = self.scores.shape[1]
        ranks = torch.cat((self.ranks, ranks), dim=1)
        ranks, order = ranks.sort(dim=1, descending=True, stable=True)
        order = order[:, :best]
        counts = torch.full_like(scores, count, dtype=torch.long)
        self.ranks = ranks[:, :best]
        self.scores = torch.cat((self.scores, scores), dim=1).gather(1, order)
        self.counts = torch.cat((self.counts, counts), dim=1).gather(1, order)
        self.ids = _gather_beams(torch.cat((self.ids, ids), dim=1), order)

    def select(self, sentences: Tensor) -> None:
        for name in ("ranks", "scores", "counts", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def hypotheses(self, eos: int, length_penalty: float) -> list[list[Hypothesis]]:
        lists = (t.tolist() for t in (self.ranks, self.scores, self.counts, self.ids))
        hypotheses: list[list[Hypothesis]] = []
        for source in zip(*lists, strict=True):
            hypotheses.append([])
            for rank, score, count, ids in zip(*source, strict=True):
                if rank != -torch.inf:
                    hypothesis = Hypothesis.of(ids[:count], score, eos, length_penalty)
                    hypotheses[-1].append(hypothesis)
        return hypotheses


def best_continuations(logs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest sums of a beam's score and a token's log p, best first, with beam and token.

    logs (B, beams, V), scores (B, beams) -> sums, beams and tokens, each (B, count). `count` is at
    most twice the number of beams; where there are too few, sums of −∞ fill up.

    The vocabulary is split into blocks. The n best tokens are in the n blocks with the best maxima,
    so only those blocks are sorted. Of equal sums the earlier beam comes first, then the lower
    token.
    """
    n = expect(logs=(logs, "B beams V"), scores=(scores, "B beams"))
    V = n["V"]
    blocks = -(-V // BLOCK)
    maxima = (_block_maxima(logs) + scores[:, :, None]).flatten(1)  # (B, beams·blocks)
    candidates = _topk_stable(maxima, min(count, maxima.shape[1]))
    candidates = candidates.sort(dim=1).values  # (B, candidates)

    beam = candidates // blocks
    offset = candidates % blocks * BLOCK
    token = offset[:, :, None] + torch.arange(BLOCK, device=logs.device)  # (B, candidates, BLOCK)
    index = beam[:, :, None] * V + token.clamp(max=V - 1)
    sums = logs.flatten(1).gather(1, index.flatten(1)).view_as(index)
    sums = sums + scores.gather(1, beam)[:, :, None]
    sums = sums.masked_fill(token >= V, -torch.inf).flatten(1)  # (B, candidates·BLOCK)

    best = _topk_stable(sums, count)
    index = index.flatten(1).gather(1, best)
    return sums.gather(1, best), index // V, index % V


def _block_maxima(logs: Tensor) -> Tensor:
    """The largest log p of each block, (B, beams, blocks); the last block may be shorter."""
    full = logs.shape[-1] // BLOCK * BLOCK
    maxima = []
    if full:
        maxima.append(logs[..., :full].reshape(*logs.shape[:-1], -1, BLOCK).amax(dim=-1))
    if full < logs.shape[-1]:
        maxima.append(logs[..., full:].amax(dim=-1, keepdim=True))
    return torch.cat(maxima, dim=-1)


def _topk_stable(values: Tensor, count: int) -> Tensor:
    """The indices of the `count` largest of each row, largest first; of equal ones the earlier.

    `topk` leaves the order of equal values open, so it gets distinct integers instead: the bits of
    the float, flipped so that they sort as the float does, above the index counted from the end.
    """
    values = values.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)  # NaN shows
    bits = (values + 0.0).view(torch.int32)  # −0 becomes 0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    from_end = torch.arange(values.shape[1] - 1, -1, -1, device=values.device)
    return ((bits.long() << 32) | from_end).topk(count, dim=1).indices


def _gather_beams(ids: Tensor, beams: Tensor) -> Tensor:
    """ids (B, W, longest), beams (B, n) -> the ids of these beams, (B, n, longest)."""
    return ids.gather(1, beams[:, :, None].expand(-1, -1, ids.shape[-1]))
