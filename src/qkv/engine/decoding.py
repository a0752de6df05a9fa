"""A batch of sources on their way to targets: what the decoder remembers of each source's beams.

The encoder runs once a source, and so do the keys and values that are read of it. How the beams
are kept is a choice: as a tree they share what they have in common, as rows each has a copy.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from qkv.attention import CrossSlot, Mask
from qkv.data.grouping import near_length
from qkv.engine.texts import Texts
from qkv.model import Translator
from qkv.model.padding import real_lengths

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


def taken(slot: CrossSlot, rows: Tensor) -> CrossSlot:
    """The keys and values of these rows' sources."""
    if slot.kept is None:
        return slot
    k, v = slot.kept
    return CrossSlot((k.index_select(0, rows), v.index_select(0, rows)))


def _encoded(
    model: Translator, sources: Sequence[Sequence[int]], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """The memory of all sources (B, S, D) and their lengths; none if they are equal.

    Those of nearly equal length are encoded together, so that next to nothing is padding.
    """
    lengths = np.array([[len(source)] for source in sources])
    batches = near_length(lengths, ENCODED, np.random.default_rng(0))
    if len(batches) == 1:
        texts = Texts.of(sources, pad=0).to(device)
        return model.encode(texts.ids, texts.lengths), texts.lengths
    memory: Tensor | None = None
    for batch in batches:
        texts = Texts.of([sources[i] for i in batch], pad=0).to(device)
        part = model.encode(texts.ids, texts.lengths)
        if memory is None:
            memory = part.new_zeros(len(sources), int(lengths.max()), part.shape[2])
        memory[torch.from_numpy(batch), : part.shape[1]] = part
    assert memory is not None
    even = int(lengths.min()) == int(lengths.max())
    return memory, None if even else torch.from_numpy(lengths[:, 0]).to(device)
