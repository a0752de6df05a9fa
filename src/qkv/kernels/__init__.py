"""Inner loops in C++, compiled for this machine when they are asked for.

They do in one pass what torch does in several, and in one call what would be hundreds; each has a
slower twin in torch that it equals.
"""

from qkv.kernels.inference import (
    ACTIVATIONS,
    InferenceKernels,
    Layer,
    Matrix,
    Norm,
    Panels,
    Shape,
    floats,
    inference_kernels,
)

__all__ = [
    "ACTIVATIONS",
    "InferenceKernels",
    "Layer",
    "Matrix",
    "Norm",
    "Panels",
    "Shape",
    "floats",
    "inference_kernels",
]
