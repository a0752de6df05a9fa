"""Prompts that begin alike: keys and values of recent ones, to copy instead of compute."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import KVCache

Ids = NDArray[np.int64]
WORTH = 8  # fewer tokens in common are computed again, not copied


@dataclass(frozen=True, eq=False)
class Kept:
    """A prompt and, for each layer, its keys and values (K, n, E)."""

    ids: Ids
    layers: list[tuple[Tensor, Tensor]]


class Prefixes:
    """Recent prompts, of at most `budget` tokens in all; the longest unused go first."""

    def __init__(self, budget: int) -> None:
        self.budget, self.tokens = budget, 0
        self._kept: dict[Kept, None] = {}  # in the order they were last used
        self._by_head: dict[bytes, list[Kept]] = {}

    def longest(self, ids: Ids) -> tuple[int, Kept | None]:
        """How many of these ids a kept prompt begins with, at most, and which one does."""
        alike = [(in_common(ids, kept.ids), kept) for kept in self._by_head.get(head(ids), ())]
        if not alike:
            return 0, None
        best, kept = max(alike, key=lambda pair: pair[0])
        self._kept[kept] = self._kept.pop(kept)
        return best, kept

    def keep(self, ids: Ids, cache: KVCache, row: int) -> None:
        """Remember a prompt whose keys are the last ones of that row of the cache."""
        n, like_it = len(ids), self._by_head.get(head(ids), [])
        if not WORTH <= n <= self.budget or any(in_common(ids, k.ids) == n for k in like_it):
            return
        for kept in [kept for kept in like_it if in_common(ids, kept.ids) == len(kept.ids)]:
            self._forget(kept)
        columns = slice(cache.length - n, cache.length)
        layers = [(s.k[row, :, columns].clone(), s.v[row, :, columns].clone()) for s in cache.slots]
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
