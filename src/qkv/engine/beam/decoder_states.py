"""The decoder's side of a search: cache and encoder memory for a batch of sources.

The encoder runs once per source, and so do the cross-attention keys and values. The beams are kept
in one of two ways: as a tree they share what they have in common, as rows each has a copy.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from qkv.attention import CrossLayerCache, KVCache, LayerCache, Mask
from qkv.data import length_batches
from qkv.engine.batching import PaddedBatch
from qkv.model import Translator, real_lengths

ENCODER_TOKENS = 2048  # source tokens encoded at a time

TREE_STEPS = 16  # tokens per beam before keys that no beam sees are dropped


class DecoderStates(Protocol):
    """Beams that have read their source and the beginning of a target."""

    device: torch.device

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Reads these tokens; log p of every next token: (B, n) -> (B, n, V).

        n is 1 as long as the beams of a source are alike, and then their number. A forbidden token
        has −∞; its probability is not redistributed among the others.
        """

    def reorder(self, parents: Tensor) -> None:
        """Beam j of source b continues what beam parents[b, j] has generated."""

    def select(self, sources: Tensor) -> None:
        """Keeps only these sources."""


class EncodedSources:
    """The encoder's memory of a batch of sources, and the tokens the decoder may generate."""

    def __init__(
        self, model: Translator, sources: Sequence[Sequence[int]], forbidden: Sequence[int]
    ) -> None:
        self.model = model
        self.device = model.embedding.weight.device
        self.memory, self.lengths = _encode(model, sources, self.device)
        self.forbidden = torch.tensor(forbidden, dtype=torch.long, device=self.device)

    @property
    def mask(self) -> Mask:
        """Hides the padding of each source."""
        if self.lengths is None:
            return Mask.full()
        return Mask.padding(self.lengths)

    def select(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before."""
        self.memory = self.memory.index_select(0, rows)
        if self.lengths is not None:
            self.lengths = self.lengths.index_select(0, rows)

    def log_probs(self, tokens: Tensor, states: Tensor) -> Tensor:
        """log p of every token after each of these, from their states (B, n, D): (B, n, V)."""
        model = self.model
        logits = model.output(states, real_lengths(tokens, None), model.embedding.weight)
        logs: Tensor = logits.float().log_softmax(dim=-1)
        if len(self.forbidden):
            logs.index_fill_(-1, self.forbidden, -torch.inf)
        return logs


class RowStates:
    """Implements `DecoderStates` with a row per beam, and one per source until beams differ.

    Slower than a tree, but right for every model, also where the index of a key in the cache
    matters: with ALiBi, with T5's relative buckets, and where layers attend to a window only.
    """

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Sequence[int]],
        beams: int,
        forbidden: Sequence[int],
        capacity: int,
    ) -> None:
        self.sources = EncodedSources(model, sources, forbidden)
        self.model = model
        self.beams = beams
        self.device = self.sources.device
        self.rows_per_source = 1
        self.cache = model.empty_cache(len(sources), capacity)

    def log_probs(self, tokens: Tensor) -> Tensor:
        sources = self.sources
        column = tokens.reshape(-1, 1)
        states = self.model.states(column, sources.memory, sources.lengths, cache=self.cache)
        logs = sources.log_probs(column, states)
        return logs.view(*tokens.shape, -1)

    def reorder(self, parents: Tensor) -> None:
        if self.beams == 1:
            return
        width = self.rows_per_source
        first = torch.arange(0, len(parents) * width, width, device=self.device)
        rows = (first[:, None] + parents.clamp(max=width - 1)).flatten()
        if width < self.beams:
            self.rows_per_source = self.beams
            self._select_rows(rows)
        else:
            for layer in self.cache.layers:
                layer.reorder(rows)

    def select(self, sources: Tensor) -> None:
        beams = torch.arange(self.rows_per_source, device=self.device)
        self._select_rows((sources[:, None] * self.rows_per_source + beams).flatten())

    def _select_rows(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was; there may be more or fewer rows than before."""
        layers = [
            LayerCache(layer.k.index_select(0, rows), layer.v.index_select(0, rows), layer.length)
            for layer in self.cache.layers
        ]
        self.cache = KVCache(layers, [_select_cross(layer, rows) for layer in self.cache.cross])
        self.sources.select(rows)


class TreeStates:
    """Implements `DecoderStates` for a model with absolute positions, or rotary ones.

    The beams of a source attend to the same source keys, so they are queries of one row, and those
    keys are never copied. Nor is the cache copied when beams are reordered: every token ever
    generated is a key, and a mask says which of them belong to a beam. Every TREE_STEPS tokens the
    keys that no beam sees any more are dropped.
    """

    def __init__(
        self,
        model: Translator,
        sources: Sequence[Sequence[int]],
        beams: int,
        forbidden: Sequence[int],
    ) -> None:
        self.sources = EncodedSources(model, sources, forbidden)
        self.model = model
        self.beams = beams
        self.device = self.sources.device
        self.step = 0
        capacity = TREE_STEPS * beams
        self.cache = model.empty_cache(len(sources), capacity)
        self.visible = torch.zeros(
            len(sources), beams, capacity, dtype=torch.bool, device=self.device
        )
        self.own = torch.eye(beams, dtype=torch.bool, device=self.device)

    @staticmethod
    def supports(model: Translator) -> bool:
        """Whether the decoder's own mask does not depend on the index of a key."""
        decoder = model.decoder
        own = decoder.position.mask(torch.float32)
        return not own.parts and not any(pattern.window.parts for pattern in decoder.patterns)

    def log_probs(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        if self.cache.length + n > self.visible.shape[2]:
            self._drop_unseen(torch.arange(len(tokens), device=self.device))
        start = self.cache.length
        stop = start + n
        if n > 1:
            self.visible[:, :, start:stop] = self.own
            mask = Mask.explicit(self.visible[:, None, :, :stop])
        else:
            self.visible[:, :, start:stop] = True
            mask = Mask.full()
        states = self.model.decoder(
            self.model.embedding(tokens),
            mask,
            torch.full((n,), self.step, device=self.device),
            self.cache,
            self.sources.memory,
            self.sources.mask,
        )
        self.step += 1
        return self.sources.log_probs(tokens, states)

    def reorder(self, parents: Tensor) -> None:
        if self.beams > 1:
            self.visible = self.visible.gather(1, parents[:, :, None].expand_as(self.visible))

    def select(self, sources: Tensor) -> None:
        self.sources.select(sources)
        self._drop_unseen(sources)

    def _drop_unseen(self, sources: Tensor) -> None:
        """Keeps the keys of these sources that any beam sees, with capacity for more."""
        visible = self.visible.index_select(0, sources)[:, :, : self.cache.length]
        live = visible.any(dim=1)  # (B, length)
        count = int(live.sum(dim=1).max())
        keys = live.int().argsort(dim=1, descending=True, stable=True)[:, :count]  # in their order
        capacity = count + TREE_STEPS * self.beams
        self.visible = visible.new_zeros(len(sources), self.beams, capacity)
        self.visible[:, :, :count] = visible.gather(2, keys[:, None].expand(-1, self.beams, -1))

        def compact(t: Tensor) -> Tensor:
            fresh = t.new_empty(len(sources), t.shape[1], capacity, t.shape[3])
            fresh[:, :, :count] = t[sources[:, None], :, keys].transpose(1, 2)
            return fresh

        cross = self.cache.cross
        if len(sources) < len(self.cache.layers[0].k):
            cross = [_select_cross(layer, sources) for layer in cross]
        layers = [
            LayerCache(compact(layer.k), compact(layer.v), count) for layer in self.cache.layers
        ]
        self.cache = KVCache(layers, cross)


def _select_cross(layer: CrossLayerCache, rows: Tensor) -> CrossLayerCache:
    """The cross-attention keys and values of these rows."""
    if layer.entry is None:
        return layer
    k, v = layer.entry
    return CrossLayerCache((k.index_select(0, rows), v.index_select(0, rows)))


def _encode(
    model: Translator, sources: Sequence[Sequence[int]], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """The memory of all sources (B, S, D) and their lengths; None if they are equal.

    Sources of similar length are encoded together, so that next to nothing is padding.
    """
    lengths = np.array([[len(source)] for source in sources])
    batches = length_batches(lengths, ENCODER_TOKENS, np.random.default_rng(0))
    if len(batches) == 1:
        texts = PaddedBatch.of(sources, pad=0).to(device)
        return model.encode(texts.ids, texts.lengths), texts.lengths
    memory: Tensor | None = None
    for batch in batches:
        texts = PaddedBatch.of([sources[i] for i in batch], pad=0).to(device)
        encoded = model.encode(texts.ids, texts.lengths)
        if memory is None:
            memory = encoded.new_zeros(len(sources), int(lengths.max()), encoded.shape[2])
        memory[torch.from_numpy(batch), : encoded.shape[1]] = encoded
    assert memory is not None
    if int(lengths.min()) == int(lengths.max()):
        return memory, None
    return memory, torch.from_numpy(lengths[:, 0]).to(device)
