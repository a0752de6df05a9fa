"""Encoder outputs for many texts: packed without padding, computed on all cores, in order.

The texts of a batch are concatenated into a single row, so every matrix product works on real
tokens only; pooling and output take neighbours of equal length together.
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
from qkv.machine import adapt_threads
from qkv.model import Encoder, PooledOutput

# So many tokens keep the overhead small, and their activations in a core's cache.
DEFAULT_BATCH_TOKENS = 1024

Ids = NDArray[np.int64]

OutputFunction = Callable[[Tensor, Tensor], Tensor]  # states (B, T, D), lengths (B,) -> (B, …)

ITEMS_PER_ROUND = 8  # per thread, before the load is looked at again

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def inference(model: nn.Module) -> Iterator[None]:
    """Inside, dropout is off and no gradients are recorded."""
    adapt_threads()
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode; afterwards every module is in its old mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def batched_outputs(
    model: Encoder, texts: Sequence[ArrayLike], batch_tokens: int = DEFAULT_BATCH_TOKENS
) -> Tensor:
    """The model's output for each text, in their order, independent of the batch: (N, …)."""
    embedding = model.embedding.weight
    return _map_texts(
        model, texts, lambda states, lengths: model.output(states, lengths, embedding), batch_tokens
    )


def pooled_states(
    model: Encoder, texts: Sequence[ArrayLike], batch_tokens: int = DEFAULT_BATCH_TOKENS
) -> Tensor:
    """The pooled states of each text, before the output layer: (N, D)."""
    output = model.output
    if not isinstance(output, PooledOutput):
        raise UsageError("this encoder has an output for each token, so no vector for a text")
    return _map_texts(model, texts, output.pool, batch_tokens)


def _map_texts(
    model: Encoder, texts: Sequence[ArrayLike], output: OutputFunction, batch_tokens: int
) -> Tensor:
    arrays = [np.asarray(text, dtype=np.int64) for text in texts]
    lengths = np.array([len(text) for text in arrays], dtype=np.int64)
    _check_lengths(model, lengths)
    batches = list(_batches(lengths, batch_tokens))
    with inference(model):
        outputs = parallel_map(partial(_forward, model, arrays, output), batches)
    if not outputs:
        return torch.empty(0)
    original_order = torch.from_numpy(np.concatenate(batches).argsort())
    return torch.cat(outputs)[original_order]


def _batches(lengths: Ids, batch_tokens: int) -> Iterator[Ids]:
    """Every text once, longest first, in batches of at most so many tokens; or one long text."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    tokens = 0
    for i, length in enumerate(lengths[order].tolist()):
        if i > start and tokens + length > batch_tokens:
            yield order[start:i]
            start = i
            tokens = 0
        tokens += length
    if len(order):
        yield order[start:]


def _forward(model: Encoder, texts: Sequence[Ids], output: OutputFunction, batch: Ids) -> Tensor:
    """The outputs of one batch, float32 on the CPU."""
    arrays = [texts[i] for i in batch]
    lengths = tuple(len(text) for text in arrays)
    device = model.embedding.weight.device
    ids = torch.from_numpy(np.concatenate(arrays))[None].to(device)  # (1, N)
    positions = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])).to(device)
    with torch.inference_mode():  # the mode is per thread
        states = model.encode(ids, mask=Mask.packed(lengths), positions=positions)[0]  # (N, D)
        return torch.cat(list(_by_length(states, lengths, output))).float().cpu()


def _by_length(
    states: Tensor, lengths: tuple[int, ...], output: OutputFunction
) -> Iterator[Tensor]:
    """The outputs for neighbours of equal length; states (N, D) of all texts."""
    start = 0
    first = 0
    while first < len(lengths):
        length = lengths[first]
        count = 1
        while first + count < len(lengths) and lengths[first + count] == length:
            count += 1
        stop = start + count * length
        group = states[start:stop].view(count, length, states.shape[-1])
        yield output(group, torch.full((count,), length, device=states.device))
        start = stop
        first += count


def _check_lengths(model: Encoder, lengths: Ids) -> None:
    limit = model.encoder.position.limit
    longest = int(lengths.max(initial=0))
    if limit is not None and longest > limit:
        raise ShapeError(
            f"text {int(lengths.argmax())} has {longest} tokens but the model reads at most "
            f"{limit}; shorten it"
        )


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The function of each item, in order, on all cores; items are about equally much work.

    Either all cores work on one item together, or each core on an item of its own. Which is faster
    depends on the model and the machine, so the first items of many are timed both ways. There are
    never more threads at work than torch was given, and while other processes hold cores, not more
    than they leave: a worker that waits for its core also holds up the others, by Python's lock.
    """
    results: list[Result] = []
    apart: bool | None = None  # each core on an item of its own; None: not known yet
    threads = 0
    while len(results) < len(items):
        adapt_threads()
        rest = items[len(results) :]
        if torch.get_num_threads() != threads:
            threads = torch.get_num_threads()
            apart = None
            if len(rest) < 3 + threads:  # too few to measure
                apart = len(rest) > 1
        if threads == 1 or apart is False:
            results.append(function(rest[0]))
        elif apart:
            with _one_thread_each(threads) as pool:
                results += pool.map(function, rest[: ITEMS_PER_ROUND * threads])
        else:
            apart = _time_both_ways(function, rest, threads, results)
    return results


def _time_both_ways(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int, results: list[Result]
) -> bool:
    """Whether one thread for each item is faster; appends the results of the first items."""
    results.append(function(items[0]))  # warm-up: slower than all others
    started = time.perf_counter()
    results.append(function(items[1]))
    seconds_together = time.perf_counter() - started
    with _one_thread_each(threads) as pool:
        started = time.perf_counter()
        results += pool.map(function, items[2 : 2 + threads])
        seconds_apart = (time.perf_counter() - started) / threads
    return seconds_apart <= seconds_together


@contextmanager
def _one_thread_each(cores: int) -> Iterator[ThreadPoolExecutor]:
    """One worker per core, each of which computes with one thread."""
    torch.set_num_threads(1)  # also for the libraries whose number is global
    try:
        with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(cores)


@dataclass(frozen=True)
class PaddedBatch:
    """ids (B, T), of which the first lengths[b] are real; lengths is None if all of them are."""

    ids: Tensor
    lengths: Tensor | None
    tokens: int  # without padding

    @classmethod
    def of(cls, texts: Sequence[ArrayLike], pad: int) -> "PaddedBatch":
        """The texts padded to the longest one."""
        arrays = [np.asarray(text, dtype=np.int64) for text in texts]
        sizes = np.array([len(text) for text in arrays])
        ids = np.full((len(arrays), max(1, int(sizes.max(initial=0)))), pad)
        for row, text in zip(ids, arrays, strict=True):
            row[: len(text)] = text
        lengths = None
        if not (sizes == ids.shape[1]).all():
            lengths = torch.from_numpy(sizes)
        return cls(torch.from_numpy(ids), lengths, int(sizes.sum()))

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device) -> "PaddedBatch":
        """The batch on another device."""
        lengths = None
        if self.lengths is not None:
            lengths = self.lengths.to(device)
        return PaddedBatch(self.ids.to(device), lengths, self.tokens)
