"""What one layer may attend to, and how the lengths of a batch become masks."""

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


@dataclass(frozen=True)
class View:
    """Mask, RoPE, cache and, in a decoder, the encoder's output; the cache is the layer's own."""

    mask: Mask = FULL_MASK
    rope: RopeRotation | NoRope = NO_ROPE
    cache: LayerCache | NoLayerCache = NO_CACHE
    cross_cache: CrossLayerCache | NoLayerCache = NO_CACHE
    memory: Tensor | None = None  # (B, S, D), the encoder's output
    memory_mask: Mask = FULL_MASK

    def of_layer(self, layer: int, cache: KVCache | None) -> "View":
        """This view with that layer's part of the cache."""
        if cache is None:
            return self
        return View(
            self.mask,
            self.rope,
            cache.layers[layer],
            cache.cross[layer],
            self.memory,
            self.memory_mask,
        )


def padding_mask(ids: Tensor, lengths: Tensor | None, mask: Mask | None = None) -> Mask:
    """The mask, and no attention to padding: in row b only the first lengths[b] ids are real."""
    if mask is None:
        mask = Mask.full()
    if lengths is None:
        return mask
    _check_lengths(ids, lengths)
    return mask & Mask.padding(lengths)


def real_lengths(ids: Tensor, lengths: Tensor | None) -> Tensor:
    """The lengths, or for None the full length of every row of ids (B, T): (B,)."""
    if lengths is not None:
        return lengths
    B, T = ids.shape
    return torch.full((B,), T, device=ids.device)


def reject_lengths_with_cache(cache: object, lengths: Tensor | None) -> None:
    """Raise a CacheError if both are given: lengths could count the new positions or all."""
    if cache is not None and lengths is not None:
        raise CacheError(
            "lengths and a cache cannot be given together; give mask=Mask.padding(lengths) with "
            "the lengths of all keys, those in the cache included"
        )


def _check_lengths(ids: Tensor, lengths: Tensor) -> None:
    B, T = ids.shape
    if lengths.shape != (B,) or lengths.is_floating_point():
        raise ShapeError(
            f"lengths need one integer for each of {B} texts, "
            f"but are {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if lengths.device.type != "cpu" or torch.compiler.is_compiling() or not B:
        return  # reading a number from the device would wait for everything queued there
    shortest = int(lengths.min())
    longest = int(lengths.max())
    if shortest < 0 or longest > T:
        wrong = longest if longest > T else shortest
        raise ShapeError(f"a text of length {wrong} does not fit into {T} positions")
