"""A model rearranged to answer faster: fused and packed products, int8, compiled kernels."""

from qkv.engine.optimized.optimize import can_optimize, optimize
from qkv.engine.optimized.quantized import int8_supported

__all__ = ["can_optimize", "int8_supported", "optimize"]
