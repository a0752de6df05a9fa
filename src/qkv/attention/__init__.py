"""Attention as pure functions on tensors: kernels, masks, heads, positions and the cache."""

from qkv.attention.attend import attend, fused
from qkv.attention.cache import NO_SLOT, CrossSlot, KVCache, NoSlot, Rows, RowSlot, Slot
from qkv.attention.mask import SEE_ALL, Mask, Part, Tile
from qkv.attention.multi_head import join_heads, project_factored, project_slices, split_heads
from qkv.attention.positions import (
    UNTURNED,
    Alibi,
    Buckets,
    Rotation,
    Unturned,
    alibi_slopes,
    distance_buckets,
    frequencies,
    rotation,
    sinusoids,
)
from qkv.attention.reference import Steps, reference, soft_cap, softmax

__all__ = [
    "NO_SLOT",
    "SEE_ALL",
    "UNTURNED",
    "Alibi",
    "Buckets",
    "CrossSlot",
    "KVCache",
    "Mask",
    "NoSlot",
    "Part",
    "Rotation",
    "RowSlot",
    "Rows",
    "Slot",
    "Steps",
    "Tile",
    "Unturned",
    "alibi_slopes",
    "attend",
    "distance_buckets",
    "frequencies",
    "fused",
    "join_heads",
    "project_factored",
    "project_slices",
    "reference",
    "rotation",
    "sinusoids",
    "soft_cap",
    "softmax",
    "split_heads",
]
