"""The beams of a source as rows of their own: every beam has a copy of all it has read.

Slower than a tree, but right for every model, also where the place of a key in the cache counts:
with ALiBi's slopes, with T5's buckets and where layers see a window only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.attention import KVCache, Slot
from qkv.engine.decoding import Sources, taken
from qkv.model import Translator


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
            for slot in self.cache.slots:
                slot.reorder(rows)

    def take(self, sources: Tensor) -> None:
        beams = torch.arange(self.width, device=self.device)
        self._take((sources[:, None] * self.width + beams).flatten())

    def _take(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before."""
        slots = [
            Slot(slot.k.index_select(0, rows), slot.v.index_select(0, rows), slot.length)
            for slot in self.cache.slots
        ]
        self.cache = KVCache(slots, [taken(slot, rows) for slot in self.cache.cross])
        self.sources.take(rows)
