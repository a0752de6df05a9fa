"""Position schemes: how a model knows the order of its tokens."""

from qkv.model.position.rope import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    NtkScaling,
    Rope,
    RopeScaling,
    YarnScaling,
)
from qkv.model.position.schemes import (
    Alibi,
    Learned,
    NoPosition,
    Position,
    PositionConfig,
    RelativeBuckets,
    Sinusoidal,
    Sizes,
)

__all__ = [
    "Alibi",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "NoPosition",
    "NoScaling",
    "NtkScaling",
    "Position",
    "PositionConfig",
    "RelativeBuckets",
    "Rope",
    "RopeScaling",
    "Sinusoidal",
    "Sizes",
    "YarnScaling",
]
