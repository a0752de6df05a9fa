"""The Transformer as parts that compose: choices say what to build, modules compute it."""

from qkv.model.attention import Attention, CrossAttention, Mix, Tap
from qkv.model.block import Block
from qkv.model.choice import Choice
from qkv.model.cost import Cost, cost
from qkv.model.decoder import Decoder, DecoderOnly
from qkv.model.embedding import Embedding
from qkv.model.encoder import Encoder, EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder, Translator
from qkv.model.family import Config, Model, build, read_config, skeleton
from qkv.model.feed_forward import GEGLU, GELU, ReLU, ReLU2, SiLU, SwiGLU
from qkv.model.heads import MultiHead, SlicedHeads
from qkv.model.local import Local
from qkv.model.norm import LayerNorm, RMSNorm
from qkv.model.output import Classify, MaskedToken, NextToken, TextVector
from qkv.model.pooling import First, Last, Max, Mean
from qkv.model.position import (
    AlibiSlopes,
    Learned,
    LinearStretch,
    NoPosition,
    NtkStretch,
    RelativeBuckets,
    Rotary,
    Sinusoidal,
    TurnsStretch,
    Unstretched,
    WavelengthStretch,
)
from qkv.model.presets import preset, presets
from qkv.model.residual import NotesNorm, ParallelNorm, PostNorm, PreNorm, SandwichNorm
from qkv.model.stack import Layers, Stack
from qkv.model.view import View

__all__ = [
    "GEGLU",
    "GELU",
    "AlibiSlopes",
    "Attention",
    "Block",
    "Choice",
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
    "LinearStretch",
    "Local",
    "MaskedToken",
    "Max",
    "Mean",
    "Mix",
    "Model",
    "MultiHead",
    "NextToken",
    "NoPosition",
    "NotesNorm",
    "NtkStretch",
    "ParallelNorm",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "ReLU",
    "ReLU2",
    "RelativeBuckets",
    "Rotary",
    "SandwichNorm",
    "SiLU",
    "Sinusoidal",
    "SlicedHeads",
    "Stack",
    "SwiGLU",
    "Tap",
    "TextVector",
    "Translator",
    "TurnsStretch",
    "Unstretched",
    "View",
    "WavelengthStretch",
    "build",
    "cost",
    "preset",
    "presets",
    "read_config",
    "skeleton",
]
