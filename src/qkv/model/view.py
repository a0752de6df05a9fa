"""What one layer may look at: its mask, its rotation, its cache and, in a decoder, the memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.attention import (
    FULL_MASK,
    NO_CACHE,
    NO_ROPE,
    CrossLayerCache,
    KVCache,
    LayerCache,
    Mask,
    NoLayerCache,
    NoRope,
    RopeRotation,
)
from qkv.errors import CacheError, ShapeError

# FOLDED model/padding: Texts of different lengths in one batch: which positions are real, and
#   which only fill up.


@dataclass(frozen=True)
class View:
    """The same for all layers of a stack but for the slots of the cache."""

    mask: Mask = FULL_MASK
    rope: RopeRotation | NoRope = NO_ROPE
    cache: LayerCache | NoLayerCache = NO_CACHE
    cross_cache: CrossLayerCache | NoLayerCache = NO_CACHE
    memory: Tensor | None = None  # (B, S, D), the encoder's output
    memory_mask: Mask = FULL_MASK

    def of_layer(self, layer: int, cache: KVCache | None) -> "View":
        """This view with that layer's slots of the cache."""
        if cache is None:
            return self
        slots = cache.layers[layer], cache.cross[layer]
        return View(self.mask, self.rope, *slots, self.memory, self.memory_mask)


def padding_mask(ids: Tensor, lengths: Tensor | None, mask: Mask | None = None) -> Mask:
    """The given mask, without the padding behind each row's real length."""
    seen = Mask.full() if mask is None else mask
    if lengths is None:
        return seen
    _check(ids, lengths)
    return seen & Mask.padding(lengths)


def real_lengths(ids: Tensor, lengths: Tensor | None) -> Tensor:
    """How many positions of each row are real: all of them if nothing is said."""
    B, T = ids.shape
    return torch.full((B,), T, device=ids.device) if lengths is None else lengths


def reject_lengths_with_cache(cache: object, lengths: Tensor | None) -> None:
    """With a cache, lengths could mean the new positions or all of them."""
    if cache is not None and lengths is not None:
        raise CacheError(
            "lengths and a cache cannot be given together; give mask=Mask.padding(lengths) with "
            "the lengths of all keys, those in the cache included"
        )


def _check(ids: Tensor, lengths: Tensor) -> None:
    B, T = ids.shape
    if lengths.shape != (B,) or lengths.is_floating_point():
        raise ShapeError(
            f"lengths need one whole number for each of {B} texts, "
            f"but are {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if lengths.device.type != "cpu" or torch.compiler.is_compiling() or not B:
        return  # to read a number there would stall the machine
    least, most = int(lengths.min()), int(lengths.max())
    if least < 0 or most > T:
        raise ShapeError(
            f"a text of length {most if most > T else least} cannot stand in {T} positions"
        )
