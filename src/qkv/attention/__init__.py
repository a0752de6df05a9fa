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
from qkv.attention.mask import SEE_ALL, Mask, Part, Tile
from qkv.attention.multi_head import (
    join_heads,
    project_block_diagonal,
    project_low_rank,
    split_heads,
)
from qkv.attention.positions import (
    UNTURNED,
    AlibiBias,
    BucketBias,
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
    "NO_CACHE",
    "SEE_ALL",
    "UNTURNED",
    "AlibiBias",
    "BucketBias",
    "CrossLayerCache",
    "KVCache",
    "LayerCache",
    "Mask",
    "NoLayerCache",
    "Part",
    "RaggedCache",
    "RaggedLayerCache",
    "Rotation",
    "Steps",
    "Tile",
    "Unturned",
    "alibi_slopes",
    "attend",
    "distance_buckets",
    "frequencies",
    "fused",
    "join_heads",
    "project_block_diagonal",
    "project_low_rank",
    "reference",
    "rotation",
    "sinusoids",
    "soft_cap",
    "softmax",
    "split_heads",
]
