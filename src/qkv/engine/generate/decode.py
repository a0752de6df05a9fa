"""One sequence by itself: the shortest way from a token to the next."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from qkv.attention import KVCache
from qkv.engine.generate.request import CHUNK, Request, expect_finite, last_token_logits, reading
from qkv.engine.generate.sampling import stream_of
from qkv.engine.optimized.kernel_modules import KernelLogits
from qkv.model import Decoder

# FOLDED engine/generate/choosing: The next token of each sequence, and how probable the model
#   itself finds it.


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


def write_one(model: Decoder, request: Request, vocabulary: int) -> Iterator[Choice]:
    """The tokens of the answer, up to its end or its greatest length; each is read when asked for.

    vocabulary: how many tokens there are to choose from.
    """
    request.check(model)
    chooser, ends = Chooser(request), request.ends
    device = model.embedding.weight.device
    with reading(model):
        cache = model.empty_cache(1, request.room)
        token = torch.zeros(1, 1, dtype=torch.long, device=device)
        choice = following(model, read_prompt(model, request.ids, cache), chooser, vocabulary)
    for _ in range(request.max_tokens - 1):
        yield choice
        if choice.id in ends:
            return
        with reading(model):
            chooser.add(choice.id)
            token.fill_(choice.id)
            choice = following(model, model.states(token, cache=cache), chooser, vocabulary)
    yield choice


def following(model: Decoder, states: Tensor, chooser: Chooser, vocabulary: int) -> Choice:
    """The token after the last position."""
    if chooser.sampling.plain and isinstance(model.output, KernelLogits):
        id, logprob = model.output.argmax(states[0, -1], vocabulary)
        expect_finite(logprob)
        return Choice(id, logprob)
    return chooser.choose(last_token_logits(model, states, vocabulary)[0])


def read_prompt(model: Decoder, ids: tuple[int, ...] | list[int], cache: KVCache) -> Tensor:
    """The states after these ids, which are added to the cache in chunks; of the last chunk."""
    row = torch.tensor([ids], device=model.embedding.weight.device)
    for start in range(0, len(ids), CHUNK):
        states = model.states(row[:, start : start + CHUNK], cache=cache)
    return states
