"""Prompts of nearly the same length read together, from behind whatever is known of them.

Rows end at the same column. All of them read the same number T of last tokens: as many as the one
that knows least of its prompt needs. A shorter row begins with fillers that nobody sees.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import KVCache, Mask
from qkv.engine.generate.request import CHUNK, last_token_logits
from qkv.model import Decoder

# FOLDED engine/generate/prefixes: Prompts that begin alike: keys and values of recent ones, to
#   copy instead of compute.

Ids = NDArray[np.int64]

WORTH = 8  # fewer tokens in common are computed again, not copied


@dataclass(frozen=True, eq=False)
class Kept:
    """A prompt and, for each layer, its keys and values (K, n, E)."""

    ids: Ids
    layers: list[tuple[Tensor, Tensor]]


class PrefixCache:
    """Recent prompts, of at most `budget` tokens in all; the longest unused go first."""

    def __init__(self, budget: int) -> None:
        self.budget, self.tokens = budget, 0
        self._kept: dict[Kept, None] = {}  # in the order they were last used
        self._by_head: dict[bytes, list[Kept]] = {}

    def lookup(self, ids: Ids) -> tuple[int, Kept | None]:
        """How many of these ids a kept prompt begins with, at most, and which one does."""
        alike = [(in_common(ids, kept.ids), kept) for kept in self._by_head.get(head(ids), ())]
        if not alike:
            return 0, None
        best, kept = max(alike, key=lambda pair: pair[0])
        self._kept[kept] = self._kept.pop(kept)
        return best, kept

    def store(self, ids: Ids, cache: KVCache, row: int) -> None:
        """Remember a prompt whose keys are the last ones of that row of the cache."""
        n, like_it = len(ids), self._by_head.get(head(ids), [])
        if not WORTH <= n <= self.budget or any(in_common(ids, k.ids) == n for k in like_it):
            return
        for kept in [kept for kept in like_it if in_common(ids, kept.ids) == len(kept.ids)]:
            self._forget(kept)
        columns = slice(cache.length - n, cache.length)
        layers = [
            (s.k[row, :, columns].clone(), s.v[row, :, columns].clone()) for s in cache.layers
        ]
        new = Kept(ids, layers)
        self._kept[new] = None
        self._by_head.setdefault(head(ids), []).append(new)
        self.tokens += n
        while self.tokens > self.budget:
            self._forget(next(iter(self._kept)))

    def _forget(self, kept: Kept) -> None:
        del self._kept[kept]
        like_it = self._by_head[head(kept.ids)]
        like_it.remove(kept)
        if not like_it:
            del self._by_head[head(kept.ids)]
        self.tokens -= len(kept.ids)


def head(ids: Ids) -> bytes:
    """What prompts must share if any of it is worth copying; of a shorter one, all of it."""
    return ids[:WORTH].tobytes()


def in_common(a: Ids, b: Ids) -> int:
    """How many ids two texts begin with alike."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n


def as_array(ids: Sequence[int]) -> Ids:
    return np.array(ids, dtype=np.int64)


NEAR = 1.25  # prompts that need at most so many times the tokens of another are read with it


class Prefill:
    """Some prompts on their way into a cache, a chunk of columns at a time."""

    def __init__(self, model: Decoder, prompts: Sequence[Ids], prefixes: PrefixCache) -> None:
        self.model = model
        known = [prefixes.lookup(ids) for ids in prompts]
        T = max(needed(ids, n) for ids, (n, _) in zip(prompts, known, strict=True))
        self.lengths = [len(ids) for ids in prompts]
        S, device = max(self.lengths), model.embedding.weight.device
        self.cache = model.empty_cache(len(prompts), S)
        self.computed = 0  # real tokens read so far
        for slot in self.cache.layers:
            slot.length = S - T
        for row, (ids, (_, kept)) in enumerate(zip(prompts, known, strict=True)):
            if kept is not None and len(ids) > T:
                self._copy(kept, row, len(ids) - T)
        rows = [np.pad(ids[-T:], (max(0, T - len(ids)), 0), mode="edge") for ids in prompts]
        self.ids = torch.from_numpy(np.stack(rows)).to(device)  # (B, T)
        lengths = torch.tensor(self.lengths, device=device)[:, None]
        self.positions = (lengths - T + torch.arange(T, device=device)).clamp(min=0)  # (B, T)
        self.seen = torch.arange(S, device=device) >= S - lengths  # (B, S)
        self.even = min(self.lengths) == S
        self.width = max(1, CHUNK // len(prompts))

    def step(self, vocabulary: int) -> Tensor | None:
        """Read the next chunk; after the last, the scores of what follows each prompt (B, V)."""
        S, T, done = self.seen.shape[1], self.ids.shape[1], self.cache.length
        start = done - (S - T)
        chunk = slice(start, start + self.width)
        ids, positions = self.ids[:, chunk], self.positions[:, chunk]
        stop = done + ids.shape[1]
        mask = None if self.even else Mask.explicit(self.seen[:, None, None, :stop])
        states = self.model.states(ids, mask=mask, positions=positions, cache=self.cache)
        self.computed += int(self.seen[:, done:stop].sum())
        return last_token_logits(self.model, states, vocabulary) if stop == S else None

    def _copy(self, kept: Kept, row: int, count: int) -> None:
        """The first `count` keys and values of a kept prompt, as the last ones known of a row."""
        for slot, (k, v) in zip(self.cache.layers, kept.layers, strict=True):
            columns = slice(slot.length - count, slot.length)
            slot.k[row, :, columns] = k[:, :count]
            slot.v[row, :, columns] = v[:, :count]


def needed(ids: Ids, known: int) -> int:
    """How many tokens of a prompt must be read if so many are known: its last one always."""
    return len(ids) - min(known, len(ids) - 1)


def together(prompts: Sequence[Ids], prefixes: PrefixCache) -> list[int]:
    """Which of the waiting prompts are read next: the first, and those of nearly its length.

    One that begins like another of them waits, until it can copy that beginning.
    """
    need = [needed(ids, prefixes.lookup(ids)[0]) for ids in prompts]
    most, width, chosen = int(need[0] * NEAR) + 1, need[0], [0]
    heads = {head(prompts[0]): [prompts[0]]}  # of those chosen
    for i, ids in enumerate(prompts[1:], start=1):
        near = need[0] <= need[i] * NEAR + 1 and need[i] <= most
        if not near or max(width, need[i]) * (len(chosen) + 1) > CHUNK:
            continue
        alike = max((in_common(ids, other) for other in heads.get(head(ids), ())), default=0)
        if alike - (len(ids) - need[i]) < max(WORTH, need[i] // 4):
            chosen.append(i)
            width = max(width, need[i])
            heads.setdefault(head(ids), []).append(ids)
    return chosen
