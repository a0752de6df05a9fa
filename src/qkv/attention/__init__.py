"""Attention as pure functions on tensors: kernels, masks, heads, positions and the cache."""

from qkv.attention.attend import attend, fused
from qkv.attention.cache import (
    NO_CACHE,
    CrossLayerCache,
    KVCache,
    LayerCache,
    NoLayerCache,
    RaggedCache,
    RaggedLayerCache,
)
from qkv.attention.mask import FULL_MASK, Mask, MaskPart, Tile
from qkv.attention.multi_head import (
    join_heads,
    project_block_diagonal,
    project_low_rank,
    split_heads,
)
from qkv.attention.positions import (
    NO_ROPE,
    AlibiMask,
    BucketMask,
    NoRope,
    RopeRotation,
    alibi_slopes,
    distance_buckets,
    frequencies,
    rope_rotation,
    sinusoids,
)
from qkv.attention.reference import AttentionSteps, reference, soft_cap, softmax

__all__ = [
    "FULL_MASK",
    "NO_CACHE",
    "NO_ROPE",
    "AlibiMask",
    "AttentionSteps",
    "BucketMask",
    "CrossLayerCache",
    "KVCache",
    "LayerCache",
    "Mask",
    "MaskPart",
    "NoLayerCache",
    "NoRope",
    "RaggedCache",
    "RaggedLayerCache",
    "RopeRotation",
    "Tile",
    "alibi_slopes",
    "attend",
    "distance_buckets",
    "frequencies",
    "fused",
    "join_heads",
    "project_block_diagonal",
    "project_low_rank",
    "reference",
    "rope_rotation",
    "sinusoids",
    "soft_cap",
    "softmax",
    "split_heads",
]
