"""The next token of each sequence, and how probable the model itself finds it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.engine.generate.request import Request, expect_finite
from qkv.engine.generate.sampling import stream_of


class Choice(NamedTuple):
    """A token, and its log-probability before any strategy changed the scores."""

    id: int
    logprob: float


class Chooser:
    """Chooses for one request: its own random numbers, and the ids its strategies look at."""

    def __init__(self, request: Request) -> None:
        self.sampling, self.random = request.sampling, stream_of(request.seed, request.number)
        self.ids = torch.tensor(request.ids + (0,) * request.max_tokens)
        self.count = len(request.ids)

    @property
    def so_far(self) -> Tensor:
        return self.ids[: self.count]

    def choose(self, scores: Tensor) -> Choice:
        """The token after those so far, given its scores (V,)."""
        logs = scores.log_softmax(dim=0)
        if self.sampling.plain:
            id = int(scores.cpu().numpy().argmax())  # sooner than torch's
            logprob = float(logs[id])
            expect_finite(logprob)
            return Choice(id, logprob)
        expect_finite(float(logs.max()))
        id = self.sampling.choose(scores, self.so_far.to(scores.device), self.random)
        return Choice(id, float(logs[id]))

    def add(self, id: int) -> None:
        if not self.sampling.plain:
            self.ids[self.count] = id
            self.count += 1


def choose_many(choosers: Sequence[Chooser], scores: Tensor) -> list[Choice | Exception]:
    """One token for each row of scores (B, V), or why there is none; no row disturbs another."""
    totals = scores.logsumexp(dim=1)
    best, tokens = scores.max(dim=1)
    rows = zip(choosers, tokens.tolist(), (best - totals).tolist(), strict=True)
    found: list[Choice | Exception] = []
    for row, (chooser, token, logprob) in enumerate(rows):
        try:
            expect_finite(logprob)
            plain = chooser.sampling.plain
            found.append(Choice(token, logprob) if plain else chooser.choose(scores[row]))
        except Exception as error:  # a strategy may be anybody's code
            found.append(error)
    return found
