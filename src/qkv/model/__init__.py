"""The Transformer as parts that compose: configs say what to build, modules compute it.

The `…Config` classes are extension points: a subclass with a new `kind` adds a variant.
"""

from qkv.model.attention import (
    Attention,
    AttentionConfig,
    AttentionCore,
    BlockDiagonalAttention,
    CrossAttention,
    MultiHead,
    StepsHook,
)
from qkv.model.build import Model, ModelConfig, build, read_config, skeleton
from qkv.model.config import Config, PartConfig
from qkv.model.cost import Cost, cost
from qkv.model.decoder import Decoder, DecoderOnly
from qkv.model.embedding import Embedding
from qkv.model.encoder import Encoder, EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder, Translator
from qkv.model.feed_forward import GEGLU, GELU, FeedForwardConfig, ReLU, ReLU2, SiLU, SwiGLU
from qkv.model.norm import (
    LayerNorm,
    NormConfig,
    NormPlacement,
    ParallelNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
    SingleResidualNorm,
)
from qkv.model.output import (
    Classify,
    First,
    Last,
    MaskedToken,
    Max,
    Mean,
    NextToken,
    Pooling,
    TextVector,
)
from qkv.model.position import (
    Alibi,
    Learned,
    LinearScaling,
    Llama3Scaling,
    NoPosition,
    NoScaling,
    NtkScaling,
    Position,
    PositionConfig,
    RelativeBuckets,
    Rope,
    RopeScaling,
    Sinusoidal,
    Sizes,
    YarnScaling,
)
from qkv.model.presets import preset, presets
from qkv.model.stack import Block, Layers, LocalAttention, Stack
from qkv.model.view import View

__all__ = [
    "GEGLU",
    "GELU",
    "Alibi",
    "Attention",
    "AttentionConfig",
    "AttentionCore",
    "Block",
    "BlockDiagonalAttention",
    "Classify",
    "Config",
    "Cost",
    "CrossAttention",
    "Decoder",
    "DecoderOnly",
    "Embedding",
    "Encoder",
    "EncoderDecoder",
    "EncoderOnly",
    "FeedForwardConfig",
    "First",
    "Last",
    "LayerNorm",
    "Layers",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "LocalAttention",
    "MaskedToken",
    "Max",
    "Mean",
    "Model",
    "ModelConfig",
    "MultiHead",
    "NextToken",
    "NoPosition",
    "NoScaling",
    "NormConfig",
    "NormPlacement",
    "NtkScaling",
    "ParallelNorm",
    "PartConfig",
    "Pooling",
    "Position",
    "PositionConfig",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "ReLU",
    "ReLU2",
    "RelativeBuckets",
    "Rope",
    "RopeScaling",
    "SandwichNorm",
    "SiLU",
    "SingleResidualNorm",
    "Sinusoidal",
    "Sizes",
    "Stack",
    "StepsHook",
    "SwiGLU",
    "TextVector",
    "Translator",
    "View",
    "YarnScaling",
    "build",
    "cost",
    "preset",
    "presets",
    "read_config",
    "skeleton",
]
