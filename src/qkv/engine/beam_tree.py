"""The beams of a source as a tree: side by side as queries, with what they have written as keys.

Beams of one source read the same keys and values of it, so they stand in one row, one query each,
and those are never copied. Nor do beams copy what they have written when they follow a survivor:
every token ever written is a key, and a mask says which of them are a beam's own. From time to
time the keys that no beam sees any more are left out.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.attention import KVCache, Mask, Slot
from qkv.engine.decoding import Sources, taken
from qkv.model import Translator

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
        return not own.parts and not any(way.window.parts for way in decoder.ways)

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
        if len(sources) < len(self.cache.slots[0].k):
            cross = [taken(slot, sources) for slot in cross]
        slots = [Slot(moved(slot.k), moved(slot.v), most) for slot in self.cache.slots]
        self.cache = KVCache(slots, cross)
