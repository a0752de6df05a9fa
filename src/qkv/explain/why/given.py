"""How likely a decoder thought each token of a text before it came, and what else it expected."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log

import torch
from torch import Tensor

from qkv.engine.answering import answering
from qkv.engine.generate.reading import all_scores
from qkv.model import Decoder
from qkv.text import Tokenizer

ROWS = 128  # positions whose scores are held at a time


@dataclass(frozen=True)
class Likely:
    """A token, as people read it, and how likely it is."""

    token: str
    id: int
    probability: float

    def json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Given:
    """A token of the text and what stood to choose from in its place, the likeliest first.

    Nothing is known of a token that nothing stands before: its numbers are None. surprise: in
    bits, log₂ of 1 ÷ its probability. rank: 1 for the likeliest.
    """

    token: str
    id: int
    probability: float | None = None
    surprise: float | None = None
    rank: int | None = None
    alternatives: tuple[Likely, ...] = ()

    def json(self) -> dict[str, object]:
        others = [other.json() for other in self.alternatives]
        return {**asdict(self), "alternatives": others}


def given_tokens(
    model: Decoder, tokenizer: Tokenizer, ids: Sequence[int], top: int
) -> tuple[tuple[Given, ...], tuple[Likely, ...]]:
    """Each token of the text, and the likeliest to follow the last; `top` to choose from."""
    found = [Given(tokenizer.token(ids[0]), ids[0])]
    following: tuple[Likely, ...] = ()
    with answering(model):
        device = model.embedding.weight.device
        states = model.states(torch.tensor([list(ids)], device=device))
        for first in range(0, len(ids), ROWS):
            scores = all_scores(model, states[:, first : first + ROWS], tokenizer.size)[0]
            for at, logs in enumerate(scores.double().log_softmax(dim=-1), first + 1):
                likely = _likely(tokenizer, logs, top)
                if at == len(ids):
                    following = likely
                else:
                    found.append(_given(tokenizer, ids[at], logs, likely))
    return tuple(found), following


def _given(tokenizer: Tokenizer, id: int, logs: Tensor, likely: tuple[Likely, ...]) -> Given:
    own, rank = float(logs[id]), 1 + int((logs > logs[id]).sum())
    return Given(tokenizer.token(id), id, exp(own), -own / log(2), rank, likely)


def _likely(tokenizer: Tokenizer, logs: Tensor, top: int) -> tuple[Likely, ...]:
    best, ids = logs.topk(min(top, len(logs)))
    pairs = zip(ids.tolist(), best.exp().tolist(), strict=True)
    return tuple(Likely(tokenizer.token(id), id, share) for id, share in pairs)
