"""One sequence by itself: the shortest way from a token to the next."""

from collections.abc import Iterator

import torch
from torch import Tensor

from qkv.attention import KVCache
from qkv.engine.generate.choosing import Choice, Chooser
from qkv.engine.generate.reading import CHUNK, last_scores, reading
from qkv.engine.generate.request import Request, expect_finite
from qkv.engine.quick.looped import LoopedScores
from qkv.model import Decoder


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
    if chooser.sampling.plain and isinstance(model.output, LoopedScores):
        id, logprob = model.output.likeliest(states[0, -1], vocabulary)
        expect_finite(logprob)
        return Choice(id, logprob)
    return chooser.choose(last_scores(model, states, vocabulary)[0])


def read_prompt(model: Decoder, ids: tuple[int, ...] | list[int], cache: KVCache) -> Tensor:
    """The states after these ids, which are added to the cache in chunks; of the last chunk."""
    row = torch.tensor([ids], device=model.embedding.weight.device)
    for start in range(0, len(ids), CHUNK):
        states = model.states(row[:, start : start + CHUNK], cache=cache)
    return states
