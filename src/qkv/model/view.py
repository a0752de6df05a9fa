"""What one layer may look at: its mask, its rotation, its cache and, in a decoder, the memory."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from qkv.attention import CrossSlot, KVCache, Mask, NoSlot, Rotation, Slot, Unturned
from qkv.errors import ShapeError


@dataclass(frozen=True)
class View:
    mask: Mask = field(default_factory=Mask.full)
    rotation: Rotation | Unturned = field(default_factory=Unturned)
    memory: Tensor | None = None  # (B, S, D), the encoder's output
    memory_mask: Mask = field(default_factory=Mask.full)
    slot: Slot | NoSlot = field(default_factory=NoSlot)
    cross_slot: CrossSlot | NoSlot = field(default_factory=NoSlot)

    def with_cache(self, cache: KVCache | None, layer: int) -> "View":
        """The same view with that layer's slots of the cache."""
        if cache is None:
            return self
        return replace(self, slot=cache.slots[layer], cross_slot=cache.cross[layer])


def visible(lengths: Tensor | None, mask: Mask | None) -> Mask:
    """The given mask, without the padding behind each row's real length."""
    seen = Mask.full() if mask is None else mask
    return seen if lengths is None else seen & Mask.padding(lengths)


def real_lengths(ids: Tensor, lengths: Tensor | None) -> Tensor:
    """How many positions of each row are real: all of them if nothing is said."""
    B, T = ids.shape
    if lengths is None:
        return torch.full((B,), T, device=ids.device)
    if lengths.device.type == "cpu" and B and int(lengths.max()) > T:  # elsewhere a look waits
        raise ShapeError(f"a text of length {int(lengths.max())} cannot stand in {T} positions")
    return lengths
