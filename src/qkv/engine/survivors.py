"""Beam search: of all continuations of a sentence's beams the best survive.

A continuation that ends is set aside if it is among the best `beams`; the best `beams` that do not
end go on. A sentence is done when none of those can still reach the worst target it would give:
a sum of logarithms only falls, and no target is longer than the limit.
"""

import torch
from torch import Tensor

from qkv.engine.continuations import best_continuations
from qkv.engine.hypothesis import Hypothesis
from qkv.engine.rules import Rules


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
