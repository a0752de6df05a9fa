"""Kernels in C++, compiled for this machine on first use.

They do in one pass over memory what torch does in several, and in one call what would be hundreds.
Each has a slower counterpart in torch that a test compares it with.
"""

from qkv.kernels.inference import (
    ACTIVATIONS,
    DecoderLayer,
    DecoderShape,
    InferenceKernels,
    Matrix,
    PackedMatrix,
    RmsNorm,
    inference_kernels,
)
from qkv.kernels.library import contiguous_float32
from qkv.kernels.training import LANES, NO_DROPOUT, AttentionSpec, DropoutMask, training_kernels

__all__ = [
    "ACTIVATIONS",
    "LANES",
    "NO_DROPOUT",
    "AttentionSpec",
    "DecoderLayer",
    "DecoderShape",
    "DropoutMask",
    "InferenceKernels",
    "Matrix",
    "PackedMatrix",
    "RmsNorm",
    "contiguous_float32",
    "inference_kernels",
    "training_kernels",
]
