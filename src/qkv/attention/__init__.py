"""Attention as pure functions on tensors: kernels, masks, heads, positions and the cache."""

from qkv.attention.attend import attend
from qkv.attention.cache import NO_SLOT, CrossSlot, KVCache, NoSlot, Slot
from qkv.attention.fused import fused
from qkv.attention.heads import join_heads, project_factored, project_slices, split_heads
from qkv.attention.mask import SEE_ALL, Mask, Part, Tile
from qkv.attention.reference import Steps, reference, soft_cap, softmax
from qkv.attention.relative import Alibi, Buckets, alibi_slopes, distance_buckets
from qkv.attention.rotary import UNTURNED, Rotation, Unturned, frequencies, rotation
from qkv.attention.rows import Rows, RowSlot
from qkv.attention.sinusoid import sinusoids

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
