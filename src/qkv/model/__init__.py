"""The Transformer as parts that compose: choices say what to build, modules compute it."""

from qkv.model.attention import Attention, CrossAttention, Mix, MultiHead, SlicedHeads, Tap
from qkv.model.build import Config, Model, build, read_config, skeleton
from qkv.model.config import Choice
from qkv.model.cost import Cost, cost
from qkv.model.decoder import Decoder, DecoderOnly
from qkv.model.embedding import Embedding
from qkv.model.encoder import Encoder, EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder, Translator
from qkv.model.feed_forward import GEGLU, GELU, ReLU, ReLU2, SiLU, SwiGLU
from qkv.model.norm import (
    LayerNorm,
    NotesNorm,
    ParallelNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
)
from qkv.model.output import Classify, First, Last, MaskedToken, Max, Mean, NextToken, TextVector
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
from qkv.model.stack import Block, Layers, Local, Stack
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
