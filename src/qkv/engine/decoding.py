"""A batch of sources on their way to targets: what the decoder remembers, one row a beam.

The encoder runs once a source. Rows follow their survivors, are multiplied and leave as the search
asks; the keys and values of the source move only when a row changes its source.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from qkv.attention import CrossSlot, KVCache, Slot
from qkv.engine.texts import Texts
from qkv.model import Translator


class Decoding:
    """Rows that have read their source and the beginning of a target."""

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Sequence[int]],
        longest: int,
        forbidden: Sequence[int],
    ) -> None:
        self.device = model.embedding.weight.device
        texts = Texts.of(sources, pad=0).to(self.device)
        self.model = model
        self.memory = model.encode(texts.ids, texts.lengths)  # (rows, S, D)
        self.lengths = texts.lengths
        self.cache = model.empty_cache(len(texts), longest)
        self.forbidden = torch.tensor(forbidden, dtype=torch.long, device=self.device)

    def read(self, tokens: Tensor) -> Tensor:
        """log p of every token after these ones, one a row, which are remembered: (rows, V).

        A forbidden token has −∞; what the model gives it is not shared out among the others.
        """
        scores = self.model.decode(tokens[:, None], self.memory, self.lengths, cache=self.cache)
        logs = scores[:, -1].float().log_softmax(dim=-1)  # (rows, V)
        return logs.index_fill_(1, self.forbidden, -torch.inf)

    def follow(self, rows: Tensor) -> None:
        """Row b goes on from what row rows[b] has written; both belong to one source."""
        for slot in self.cache.slots:
            slot.reorder(rows)

    def take(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before."""
        self.cache = KVCache(
            [_taken(slot, rows) for slot in self.cache.slots],
            [_taken_source(slot, rows) for slot in self.cache.cross],
        )
        self.memory = self.memory.index_select(0, rows)
        self.lengths = None if self.lengths is None else self.lengths.index_select(0, rows)


def _taken(slot: Slot, rows: Tensor) -> Slot:
    return Slot(slot.k.index_select(0, rows), slot.v.index_select(0, rows), slot.length)


def _taken_source(slot: CrossSlot, rows: Tensor) -> CrossSlot:
    if slot.kept is None:
        return slot
    k, v = slot.kept
    return CrossSlot((k.index_select(0, rows), v.index_select(0, rows)))
