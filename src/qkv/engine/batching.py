"""What an encoder says of many texts: packed without padding, computed on all cores, in order.

Texts of a batch stand one after the other in a single row, so every matrix product works on real
tokens only; attention takes neighbours of equal length together.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from qkv.attention import Mask
from qkv.errors import ShapeError, UsageError
from qkv.model import Encoder
from qkv.model.output import PooledOutput

# FOLDED engine/answering: A model while it answers: nothing is dropped at random and no
#   gradient is kept.
# FOLDED engine/cores: Work spread over the cores, in the layout that proves quicker here.
#
#   Either all cores compute one piece together, or each core computes a piece of its own.
#   Which is
#   quicker depends on the model and the machine, so the first pieces of a long work are timed
#   both
#   ways. There are never more threads at work than torch was given.
# FOLDED engine/texts: Texts side by side in one tensor, each as long as it is.


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Inside, the model is at rest and torch keeps nothing for a backward pass."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode; afterwards every part is in the mode it was in."""
    learning = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in learning:
            part.training = True


Piece = TypeVar("Piece")

Result = TypeVar("Result")


def parallel_map(do: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """What `do` makes of each piece, in order; pieces are about equally much work."""
    cores = torch.get_num_threads()
    if cores == 1 or len(pieces) < 2:
        return [do(piece) for piece in pieces]
    if len(pieces) < 3 + cores:
        with _apart(cores) as pool:
            return list(pool.map(do, pieces))
    found = [do(pieces[0])]  # the first is slower than all others
    began = time.perf_counter()
    found.append(do(pieces[1]))
    together = time.perf_counter() - began
    with _apart(cores) as pool:
        began = time.perf_counter()
        found += pool.map(do, pieces[2 : 2 + cores])
        apart = (time.perf_counter() - began) / cores
        if apart <= together:
            return found + list(pool.map(do, pieces[2 + cores :]))
    return found + [do(piece) for piece in pieces[2 + cores :]]


@contextmanager
def _apart(cores: int) -> Iterator[ThreadPoolExecutor]:
    """One worker a core, each of which computes with one thread."""
    torch.set_num_threads(1)  # also for the libraries whose number holds for all threads
    try:
        with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(cores)


TOKENS = 1024  # computed at a time: overhead is small, and they stay in a core's cache

Ids = NDArray[np.int64]

Last = Callable[[Tensor, Tensor], Tensor]  # states (B, T, D), lengths (B,) -> an answer each


def batched_outputs(model: Encoder, texts: Sequence[ArrayLike], budget: int = TOKENS) -> Tensor:
    """The model's answer for each text, in their order, whatever stands beside them: (N, …)."""
    table = model.embedding.weight
    return _each(model, texts, lambda states, n: model.output(states, n, table), budget)


def pooled_states(model: Encoder, texts: Sequence[ArrayLike], budget: int = TOKENS) -> Tensor:
    """The states of each text as one vector, before anything is made of it: (N, D)."""
    output = model.output
    if not isinstance(output, PooledOutput):
        raise UsageError("this encoder answers for each token, so it has no vector for a text")
    return _each(model, texts, output.pool, budget)


def _each(model: Encoder, texts: Sequence[ArrayLike], last: Last, budget: int) -> Tensor:
    arrays = [np.asarray(text, dtype=np.int64) for text in texts]
    lengths = np.array([len(text) for text in arrays], dtype=np.int64)
    _expect_short(model, lengths)
    batches = list(_batches(lengths, budget))
    with inference(model):
        found = parallel_map(partial(_answer, model, arrays, last), batches)
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


@dataclass(frozen=True)
class PaddedBatch:
    """ids (B, T), of which the first lengths[b] are real; no lengths if all of them are."""

    ids: Tensor
    lengths: Tensor | None
    tokens: int  # real ones

    @classmethod
    def of(cls, texts: Sequence[ArrayLike], pad: int) -> "PaddedBatch":
        arrays = [np.asarray(text, dtype=np.int64) for text in texts]
        sizes = np.array([len(text) for text in arrays])
        ids = np.full((len(arrays), max(1, int(sizes.max(initial=0)))), pad)
        for row, text in zip(ids, arrays, strict=True):
            row[: len(text)] = text
        even = (sizes == ids.shape[1]).all()
        lengths = None if even else torch.from_numpy(sizes)
        return cls(torch.from_numpy(ids), lengths, int(sizes.sum()))

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device) -> "PaddedBatch":
        lengths = None if self.lengths is None else self.lengths.to(device)
        return PaddedBatch(self.ids.to(device), lengths, self.tokens)
