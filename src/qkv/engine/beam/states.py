"""A batch of sources on their way to targets: what the decoder remembers of each source's beams.

The encoder runs once a source, and so do the keys and values that are read of it. How the beams
are kept is a choice: as a tree they share what they have in common, as rows each has a copy.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from qkv.attention import CrossLayerCache, KVCache, LayerCache, Mask
from qkv.data.encoded import near_length
from qkv.engine.batching import PaddedBatch
from qkv.model import Translator
from qkv.model.view import real_lengths

# FOLDED engine/beam_rows: The beams of a source as rows of their own: every beam has a copy of
#   all it has read.
#
#   Slower than a tree, but right for every model, also where the place of a key in the cache
#   counts:
#   with ALiBi's slopes, with T5's buckets and where layers see a window only.
# FOLDED engine/beam_tree: The beams of a source as a tree: side by side as queries, with what
#   they have written as keys.
#
#   Beams of one source read the same keys and values of it, so they stand in one row, one
#   query each,
#   and those are never copied. Nor do beams copy what they have written when they follow a
#   survivor:
#   every token ever written is a key, and a mask says which of them are a beam's own. From
#   time to
#   time the keys that no beam sees any more are left out.

ENCODED = 2048  # source tokens encoded at a time


class Decoding(Protocol):
    """Beams that have read their source and the beginning of a target."""

    device: torch.device

    def read(self, tokens: Tensor) -> Tensor:
        """log p of every token after these ones, which are remembered: (B, n) -> (B, n, V).

        n is 1 as long as the beams of a source are alike, and then their number. A forbidden token
        has −∞; what the model gives it is not shared out among the others.
        """

    def follow(self, parents: Tensor) -> None:
        """Beam j of source b goes on from what beam parents[b, j] has written."""

    def take(self, sources: Tensor) -> None:
        """Go on with these sources only."""


class Sources:
    """What the encoder made of a batch of sources, and what the decoder may write."""

    def __init__(
        self, model: Translator, sources: Sequence[Sequence[int]], forbidden: Sequence[int]
    ) -> None:
        self.model, self.device = model, model.embedding.weight.device
        self.memory, self.lengths = _encoded(model, sources, self.device)
        self.forbidden = torch.tensor(forbidden, dtype=torch.long, device=self.device)

    @property
    def seen(self) -> Mask:
        """The real positions of each source."""
        return Mask.full() if self.lengths is None else Mask.padding(self.lengths)

    def take(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before."""
        self.memory = self.memory.index_select(0, rows)
        self.lengths = None if self.lengths is None else self.lengths.index_select(0, rows)

    def log_probabilities(self, tokens: Tensor, states: Tensor) -> Tensor:
        """log p of every token after each of these, whose states (B, n, D) are known: (B, n, V)."""
        model = self.model
        scores = model.output(states, real_lengths(tokens, None), model.embedding.weight)
        logs: Tensor = scores.float().log_softmax(dim=-1)
        return logs.index_fill_(-1, self.forbidden, -torch.inf) if len(self.forbidden) else logs


def taken(slot: CrossLayerCache, rows: Tensor) -> CrossLayerCache:
    """The keys and values of these rows' sources."""
    if slot.entry is None:
        return slot
    k, v = slot.entry
    return CrossLayerCache((k.index_select(0, rows), v.index_select(0, rows)))


def _encoded(
    model: Translator, sources: Sequence[Sequence[int]], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """The memory of all sources (B, S, D) and their lengths; none if they are equal.

    Those of nearly equal length are encoded together, so that next to nothing is padding.
    """
    lengths = np.array([[len(source)] for source in sources])
    batches = near_length(lengths, ENCODED, np.random.default_rng(0))
    if len(batches) == 1:
        texts = PaddedBatch.of(sources, pad=0).to(device)
        return model.encode(texts.ids, texts.lengths), texts.lengths
    memory: Tensor | None = None
    for batch in batches:
        texts = PaddedBatch.of([sources[i] for i in batch], pad=0).to(device)
        part = model.encode(texts.ids, texts.lengths)
        if memory is None:
            memory = part.new_zeros(len(sources), int(lengths.max()), part.shape[2])
        memory[torch.from_numpy(batch), : part.shape[1]] = part
    assert memory is not None
    even = int(lengths.min()) == int(lengths.max())
    return memory, None if even else torch.from_numpy(lengths[:, 0]).to(device)


class Rows:
    """Implements `Decoding`; there is one row a source until beams part."""

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Sequence[int]],
        beams: int,
        forbidden: Sequence[int],
        longest: int,
    ) -> None:
        self.sources = Sources(model, sources, forbidden)
        self.model, self.beams, self.device = model, beams, self.sources.device
        self.width = 1  # beams that have a row
        self.cache = model.empty_cache(len(sources), longest)

    def read(self, tokens: Tensor) -> Tensor:
        sources = self.sources
        column = tokens.reshape(-1, 1)
        states = self.model.states(column, sources.memory, sources.lengths, cache=self.cache)
        logs = sources.log_probabilities(column, states)
        return logs.view(*tokens.shape, -1)

    def follow(self, parents: Tensor) -> None:
        if self.beams == 1:
            return
        first = torch.arange(0, len(parents) * self.width, self.width, device=self.device)
        rows = (first[:, None] + parents.clamp(max=self.width - 1)).flatten()
        if self.width < self.beams:
            self.width = self.beams
            self._take(rows)
        else:
            for slot in self.cache.layers:
                slot.reorder(rows)

    def take(self, sources: Tensor) -> None:
        beams = torch.arange(self.width, device=self.device)
        self._take((sources[:, None] * self.width + beams).flatten())

    def _take(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before."""
        slots = [
            LayerCache(slot.k.index_select(0, rows), slot.v.index_select(0, rows), slot.length)
            for slot in self.cache.layers
        ]
        self.cache = KVCache(slots, [taken(slot, rows) for slot in self.cache.cross])
        self.sources.take(rows)


STEPS = 16  # tokens a beam may write before keys are sorted out


class Tree:
    """Implements `Decoding` for a model that counts positions, not the distance between keys."""

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Sequence[int]],
        beams: int,
        forbidden: Sequence[int],
    ) -> None:
        self.sources = Sources(model, sources, forbidden)
        self.model, self.beams, self.device = model, beams, self.sources.device
        self.step = 0
        self.cache = model.empty_cache(len(sources), STEPS * beams)
        self.seen = torch.zeros(
            len(sources), beams, STEPS * beams, dtype=torch.bool, device=self.device
        )
        self.own = torch.eye(beams, dtype=torch.bool, device=self.device)

    @staticmethod
    def suits(model: Translator) -> bool:
        """Whether the decoder's own mask leaves it open where a key stands."""
        decoder = model.decoder
        own = decoder.position.mask(torch.float32)
        return not own.parts and not any(way.window.parts for way in decoder.patterns)

    def read(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        if self.cache.length + n > self.seen.shape[2]:
            self._sort_out(torch.arange(len(tokens), device=self.device))
        start, stop = self.cache.length, self.cache.length + n
        self.seen[:, :, start:stop] = self.own if n > 1 else True
        mask = Mask.explicit(self.seen[:, None, :, :stop]) if n > 1 else Mask.full()
        positions = torch.full((n,), self.step, device=self.device)
        states = self.model.decoder(
            self.model.embedding(tokens), mask, positions, self.cache,
            self.sources.memory, self.sources.seen,
        )  # fmt: skip
        self.step += 1
        return self.sources.log_probabilities(tokens, states)

    def follow(self, parents: Tensor) -> None:
        if self.beams > 1:
            self.seen = self.seen.gather(1, parents[:, :, None].expand_as(self.seen))

    def take(self, sources: Tensor) -> None:
        self.sources.take(sources)
        self._sort_out(sources)

    def _sort_out(self, sources: Tensor) -> None:
        """Keep of these sources the keys that any beam sees, with room for more."""
        length = self.cache.length
        seen = self.seen.index_select(0, sources)[:, :, :length]
        live = seen.any(dim=1)  # (B, length)
        most = int(live.sum(dim=1).max())
        kept = live.int().argsort(dim=1, descending=True, stable=True)[:, :most]  # in their order
        room = most + STEPS * self.beams
        self.seen = seen.new_zeros(len(sources), self.beams, room)
        self.seen[:, :, :most] = seen.gather(2, kept[:, None].expand(-1, self.beams, -1))

        def moved(t: Tensor) -> Tensor:
            fresh = t.new_empty(len(sources), t.shape[1], room, t.shape[3])
            fresh[:, :, :most] = t[sources[:, None], :, kept].transpose(1, 2)
            return fresh

        cross = self.cache.cross
        if len(sources) < len(self.cache.layers[0].k):
            cross = [taken(slot, sources) for slot in cross]
        slots = [LayerCache(moved(slot.k), moved(slot.v), most) for slot in self.cache.layers]
        self.cache = KVCache(slots, cross)
