"""The Transformer as parts that compose: choices say what to build, modules compute it."""

from qkv.model.attention import (
    Attention,
    AttentionCore,
    BlockDiagonalAttention,
    CrossAttention,
    MultiHead,
    StepsHook,
)
from qkv.model.build import Model, ModelConfig, build, read_config, skeleton
from qkv.model.config import Config
from qkv.model.cost import Cost, cost
from qkv.model.decoder import Decoder, DecoderOnly
from qkv.model.embedding import Embedding
from qkv.model.encoder import Encoder, EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder, Translator
from qkv.model.feed_forward import GEGLU, GELU, ReLU, ReLU2, SiLU, SwiGLU
from qkv.model.norm import (
    LayerNorm,
    ParallelNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
    SingleResidualNorm,
)
from qkv.model.output import Classify, First, Last, MaskedToken, Max, Mean, NextToken, TextVector
from qkv.model.position import (
    Alibi,
    Learned,
    LinearScaling,
    Llama3Scaling,
    NoPosition,
    NoScaling,
    NtkScaling,
    RelativeBuckets,
    Rope,
    Sinusoidal,
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
    "NtkScaling",
    "ParallelNorm",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "ReLU",
    "ReLU2",
    "RelativeBuckets",
    "Rope",
    "SandwichNorm",
    "SiLU",
    "SingleResidualNorm",
    "Sinusoidal",
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
