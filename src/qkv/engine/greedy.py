"""Greedy search: the most probable token each time, until it is the end."""

import torch
from torch import Tensor

from qkv.engine.hypothesis import Hypothesis
from qkv.engine.rules import Rules


class Greedy:
    """One beam for each sentence; nothing to compare."""

    def __init__(self, limits: Tensor, longest: int, rules: Rules) -> None:
        B, device = len(limits), limits.device
        self.rules, self.limits, self.step = rules, limits, 0
        self.tokens = torch.full((B, 1), rules.start, device=device)
        self.parents = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.done = torch.zeros(B, dtype=torch.bool, device=device)
        self.scores = torch.zeros(B, device=device)
        self.counts = torch.zeros(B, dtype=torch.long, device=device)
        self.ids = torch.zeros(B, longest, dtype=torch.long, device=device)

    def choose(self, logs: Tensor) -> None:
        value, token = logs[:, 0].max(dim=-1)  # of equal ones the first
        self.ids[:, self.step] = token
        self.step += 1
        self.scores += value.masked_fill(self.done, 0.0)
        self.counts.masked_fill_(~self.done, self.step)
        self.done = self.done | (token == self.rules.end) | (self.limits == self.step)
        self.tokens = token[:, None]

    def take(self, sentences: Tensor) -> None:
        for name in ("tokens", "parents", "limits", "done", "scores", "counts", "ids"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def hypotheses(self) -> list[list[Hypothesis]]:
        end, penalty = self.rules.end, self.rules.length_penalty
        state = zip(self.ids.tolist(), self.counts.tolist(), self.scores.tolist(), strict=True)
        return [[Hypothesis.of(ids[:n], score, end, penalty)] for ids, n, score in state]
