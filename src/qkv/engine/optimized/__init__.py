"""A model rearranged to answer faster: fused and packed products, int8, compiled kernels."""

from qkv.engine.optimized.fused import copy_as
from qkv.engine.optimized.kernel_modules import activation_code, require_activation_code
from qkv.engine.optimized.linear import LinearWeights
from qkv.engine.optimized.optimize import can_optimize, optimize
from qkv.engine.optimized.quantized import PackedQuantizedLinear, QuantizedEmbedding, int8_supported
from qkv.machine import avoid_broken_amx

__all__ = [
    "LinearWeights",
    "PackedQuantizedLinear",
    "QuantizedEmbedding",
    "activation_code",
    "can_optimize",
    "copy_as",
    "int8_supported",
    "optimize",
    "require_activation_code",
]

avoid_broken_amx()  # here, as every int8 product of torch is behind this package
