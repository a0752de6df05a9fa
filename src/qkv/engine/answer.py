"""What an encoder says of many texts: packed without padding, computed on all cores, in order.

Texts of a batch stand one after the other in a single row, so every matrix product works on real
tokens only; attention takes neighbours of equal length together.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from qkv.attention import Mask
from qkv.engine.answering import answering
from qkv.engine.cores import spread
from qkv.errors import ShapeError, UsageError
from qkv.model import Encoder
from qkv.model.output import Pooled

TOKENS = 1024  # computed at a time: overhead is small, and they stay in a core's cache

Ids = NDArray[np.int64]
Last = Callable[[Tensor, Tensor], Tensor]  # states (B, T, D), lengths (B,) -> an answer each


def answers(model: Encoder, texts: Sequence[ArrayLike], budget: int = TOKENS) -> Tensor:
    """The model's answer for each text, in their order, whatever stands beside them: (N, …)."""
    table = model.embedding.weight
    return _each(model, texts, lambda states, n: model.output(states, n, table), budget)


def pooled(model: Encoder, texts: Sequence[ArrayLike], budget: int = TOKENS) -> Tensor:
    """The states of each text as one vector, before anything is made of it: (N, D)."""
    output = model.output
    if not isinstance(output, Pooled):
        raise UsageError("this encoder answers for each token, so it has no vector for a text")
    return _each(model, texts, output.pool, budget)


def _each(model: Encoder, texts: Sequence[ArrayLike], last: Last, budget: int) -> Tensor:
    arrays = [np.asarray(text, dtype=np.int64) for text in texts]
    lengths = np.array([len(text) for text in arrays], dtype=np.int64)
    _expect_short(model, lengths)
    batches = list(_batches(lengths, budget))
    with answering(model):
        found = spread(partial(_answer, model, arrays, last), batches)
    if not found:
        return torch.empty(0)
    back = torch.from_numpy(np.concatenate(batches).argsort())
    return torch.cat(found)[back]


def _batches(lengths: Ids, budget: int) -> Iterator[Ids]:
    """Every text once, longest first, in batches of at most so many tokens; or one long text."""
    order = np.argsort(-lengths, kind="stable")
    start, tokens = 0, 0
    for i, length in enumerate(lengths[order].tolist()):
        if i > start and tokens + length > budget:
            yield order[start:i]
            start, tokens = i, 0
        tokens += length
    if len(order):
        yield order[start:]


def _answer(model: Encoder, texts: Sequence[Ids], last: Last, batch: Ids) -> Tensor:
    together = [texts[i] for i in batch]
    lengths = tuple(len(text) for text in together)
    device = model.embedding.weight.device
    ids = torch.from_numpy(np.concatenate(together))[None].to(device)  # (1, N)
    places = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])).to(device)
    with torch.inference_mode():  # each thread has a mode of its own
        states = model.encode(ids, mask=Mask.packed(lengths), positions=places)[0]  # (N, D)
        return torch.cat(list(_by_length(states, lengths, last))).float().cpu()


def _by_length(states: Tensor, lengths: tuple[int, ...], last: Last) -> Iterator[Tensor]:
    """The answers for neighbours of equal length; states (N, D) of all texts."""
    start, at = 0, 0
    while at < len(lengths):
        length, count = lengths[at], 1
        while at + count < len(lengths) and lengths[at + count] == length:
            count += 1
        stop = start + count * length
        each = states[start:stop].view(count, length, states.shape[-1])
        yield last(each, torch.full((count,), length, device=states.device))
        start, at = stop, at + count


def _expect_short(model: Encoder, lengths: Ids) -> None:
    most, longest = model.encoder.position.limit, int(lengths.max(initial=0))
    if most is not None and longest > most:
        which = int(lengths.argmax())
        raise ShapeError(
            f"text {which} has {longest} tokens but the model reads at most {most}; shorten it"
        )
