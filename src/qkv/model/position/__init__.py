"""Position schemes: how a model knows the order of its tokens."""

from qkv.model.position.rope import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    NtkScaling,
    Rope,
    RopePosition,
    RopeScaling,
    YarnScaling,
)
from qkv.model.position.schemes import (
    Alibi,
    AlibiPositions,
    Learned,
    LearnedPositions,
    NoPosition,
    Position,
    PositionConfig,
    RelativeBuckets,
    RelativePositions,
    Sinusoidal,
    SinusoidalPositions,
    Sizes,
)

__all__ = [
    "Alibi",
    "AlibiPositions",
    "Learned",
    "LearnedPositions",
    "LinearScaling",
    "Llama3Scaling",
    "NoPosition",
    "NoScaling",
    "NtkScaling",
    "Position",
    "PositionConfig",
    "RelativeBuckets",
    "RelativePositions",
    "Rope",
    "RopePosition",
    "RopeScaling",
    "Sinusoidal",
    "SinusoidalPositions",
    "Sizes",
    "YarnScaling",
]
