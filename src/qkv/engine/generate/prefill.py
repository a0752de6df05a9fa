"""Prefill: prompts of similar length are read together, from behind their cached prefixes.

The rows of a prefill end at the same column (left padding). All of them read the same number T of
last tokens: as many as the prompt with the shortest cached prefix needs. Shorter prompts begin
with padding, which the mask hides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qkv.attention import KVCache, Mask
from qkv.engine.generate.decode import PREFILL_CHUNK, last_token_logits
from qkv.model import Decoder

Ids = NDArray[np.int64]

MIN_PREFIX = 8  # shorter common prefixes are computed again, not copied

LENGTH_RATIO = 1.25  # prompts that need at most so many times the tokens of another go with it


@dataclass(frozen=True, eq=False)
class CachedPrompt:
    """A prompt and, for each layer, its keys and values (K, n, E)."""

    ids: Ids
    layers: list[tuple[Tensor, Tensor]]
    salt: str

    @property
    def bytes(self) -> int:
        return sum(k.nbytes + v.nbytes for k, v in self.layers)


class PrefixCache:
    """Keys and values of recent prompts, to copy where a new prompt begins like one of them.

    max_tokens: of all cached prompts together; the least recently used are evicted first.
    Prompts of different salts share nothing: how long a prompt takes cannot tell one user what
    another one has sent.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        self._prompts: dict[CachedPrompt, None] = {}  # least recently used first
        self._by_head: dict[bytes, list[CachedPrompt]] = {}

    @property
    def bytes(self) -> int:
        """The memory of all cached keys and values."""
        return sum(prompt.bytes for prompt in self._prompts)

    def lookup(self, ids: Ids, salt: str = "") -> tuple[int, CachedPrompt | None]:
        """The length of the longest cached prefix of these ids, and the prompt it belongs to."""
        length = 0
        best: CachedPrompt | None = None
        for prompt in self._by_head.get(prefix_key(ids, salt), ()):
            common = common_prefix(ids, prompt.ids)
            if best is None or common > length:
                length = common
                best = prompt
        if best is not None:
            self._prompts[best] = self._prompts.pop(best)  # now the most recently used
        return length, best

    def store(self, ids: Ids, cache: KVCache, row: int, salt: str = "") -> None:
        """Adds a prompt whose keys are the last ones of that row of the cache."""
        n = len(ids)
        siblings = self._by_head.get(prefix_key(ids, salt), [])
        if not MIN_PREFIX <= n <= self.max_tokens:
            return
        if any(common_prefix(ids, prompt.ids) == n for prompt in siblings):
            return  # a longer prompt already covers it
        for prompt in list(siblings):
            if common_prefix(ids, prompt.ids) == len(prompt.ids):
                self._evict(prompt)  # the new prompt covers it
        columns = slice(cache.length - n, cache.length)
        layers = [
            (layer.k[row, :, columns].clone(), layer.v[row, :, columns].clone())
            for layer in cache.layers
        ]
        prompt = CachedPrompt(ids, layers, salt)
        self._prompts[prompt] = None
        self._by_head.setdefault(prefix_key(ids, salt), []).append(prompt)
        self.tokens += n
        while self.tokens > self.max_tokens:
            self._evict(next(iter(self._prompts)))

    def _evict(self, prompt: CachedPrompt) -> None:
        del self._prompts[prompt]
        key = prefix_key(prompt.ids, prompt.salt)
        siblings = self._by_head[key]
        siblings.remove(prompt)
        if not siblings:
            del self._by_head[key]
        self.tokens -= len(prompt.ids)


def prefix_key(ids: Ids, salt: str = "") -> bytes:
    """Equal for all prompts whose common prefix is worth copying."""
    return ids[:MIN_PREFIX].tobytes() + salt.encode()


def common_prefix(a: Ids, b: Ids) -> int:
    """The number of leading ids that are equal."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    if differ.any():
        return int(differ.argmax())
    return n


class Prefill:
    """Reads a group of prompts into a cache, one chunk of columns per step."""

    def __init__(
        self,
        model: Decoder,
        prompts: Sequence[Ids],
        prefixes: PrefixCache,
        salts: Sequence[str] | None = None,
    ) -> None:
        self.model = model
        device = model.embedding.weight.device
        if salts is None:
            salts = [""] * len(prompts)
        matches = [prefixes.lookup(ids, salt) for ids, salt in zip(prompts, salts, strict=True)]
        T = max(_uncached(ids, n) for ids, (n, _) in zip(prompts, matches, strict=True))
        self.lengths = [len(ids) for ids in prompts]
        S = max(self.lengths)
        self.cache = model.empty_cache(len(prompts), S)
        self.computed = 0  # real tokens read so far
        self.cached = [0] * len(prompts)  # tokens of each prompt that were copied
        for layer in self.cache.layers:
            layer.length = S - T
        for row, (ids, (_, prompt)) in enumerate(zip(prompts, matches, strict=True)):
            if prompt is not None and len(ids) > T:
                self._copy(prompt, row, len(ids) - T)
                self.cached[row] = len(ids) - T
        rows = [np.pad(ids[-T:], (max(0, T - len(ids)), 0), mode="edge") for ids in prompts]
        self.ids = torch.from_numpy(np.stack(rows)).to(device)  # (B, T)
        lengths = torch.tensor(self.lengths, device=device)[:, None]
        self.positions = (lengths - T + torch.arange(T, device=device)).clamp(min=0)  # (B, T)
        self.visible = torch.arange(S, device=device) >= S - lengths  # (B, S)
        self.unpadded = min(self.lengths) == S
        self.columns = max(1, PREFILL_CHUNK // len(prompts))

    def step(self, vocab_size: int) -> Tensor | None:
        """Reads the next chunk; after the last one, the logits after each prompt (B, V)."""
        S = self.visible.shape[1]
        T = self.ids.shape[1]
        done = self.cache.length
        start = done - (S - T)
        chunk = slice(start, start + self.columns)
        ids = self.ids[:, chunk]
        stop = done + ids.shape[1]
        mask = None
        if not self.unpadded:
            mask = Mask.explicit(self.visible[:, None, None, :stop])
        states = self.model.states(
            ids, mask=mask, positions=self.positions[:, chunk], cache=self.cache
        )
        self.computed += int(self.visible[:, done:stop].sum())
        if stop < S:
            return None
        return last_token_logits(self.model, states, vocab_size)

    def _copy(self, prompt: CachedPrompt, row: int, count: int) -> None:
        """Copies the first `count` keys and values of a cached prompt into a row."""
        for layer, (k, v) in zip(self.cache.layers, prompt.layers, strict=True):
            columns = slice(layer.length - count, layer.length)
            layer.k[row, :, columns] = k[:, :count]
            layer.v[row, :, columns] = v[:, :count]


def prefill_group(
    prompts: Sequence[Ids], prefixes: PrefixCache, salts: Sequence[str] | None = None
) -> list[int]:
    """The indices of the prompts to read next: the first, and those of similar length.

    A prompt that begins like another one of the group waits, so it can copy that prefix.
    """
    if salts is None:
        salts = [""] * len(prompts)
    uncached = [
        _uncached(ids, prefixes.lookup(ids, salt)[0])
        for ids, salt in zip(prompts, salts, strict=True)
    ]
    longest = int(uncached[0] * LENGTH_RATIO) + 1
    width = uncached[0]
    group = [0]
    by_key = {prefix_key(prompts[0], salts[0]): [prompts[0]]}  # of the group
    for i, ids in enumerate(prompts[1:], start=1):
        similar = uncached[0] <= uncached[i] * LENGTH_RATIO + 1 and uncached[i] <= longest
        if not similar or max(width, uncached[i]) * (len(group) + 1) > PREFILL_CHUNK:
            continue
        key = prefix_key(ids, salts[i])
        siblings = by_key.get(key, ())
        common = max((common_prefix(ids, other) for other in siblings), default=0)
        cached = len(ids) - uncached[i]
        if common - cached < max(MIN_PREFIX, uncached[i] // 4):
            group.append(i)
            width = max(width, uncached[i])
            by_key.setdefault(key, []).append(ids)
    return group


def _uncached(ids: Ids, cached: int) -> int:
    """How many tokens of a prompt must be read: at least the last one, for its logits."""
    return len(ids) - min(cached, len(ids) - 1)
