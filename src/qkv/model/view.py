"""What one layer may look at: its mask, its rotation, its cache and, in a decoder, the memory."""

from dataclasses import dataclass

from torch import Tensor

from qkv.attention import (
    NO_SLOT,
    SEE_ALL,
    UNTURNED,
    CrossSlot,
    KVCache,
    Mask,
    NoSlot,
    Rotation,
    Slot,
    Unturned,
)


@dataclass(frozen=True)
class View:
    """The same for all layers of a stack but for the slots of the cache."""

    mask: Mask = SEE_ALL
    rotation: Rotation | Unturned = UNTURNED
    slot: Slot | NoSlot = NO_SLOT
    cross_slot: CrossSlot | NoSlot = NO_SLOT
    memory: Tensor | None = None  # (B, S, D), the encoder's output
    memory_mask: Mask = SEE_ALL

    def of_layer(self, layer: int, cache: KVCache | None) -> "View":
        """This view with that layer's slots of the cache."""
        if cache is None:
            return self
        slots = cache.slots[layer], cache.cross[layer]
        return View(self.mask, self.rotation, *slots, self.memory, self.memory_mask)
