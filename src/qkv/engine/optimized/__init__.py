"""The same model arranged to answer sooner: fewer, larger products, and whole numbers if asked."""

from qkv.engine.optimized.optimize import can_optimize, optimize
from qkv.engine.optimized.quantized import int8_supported

__all__ = ["can_optimize", "int8_supported", "optimize"]
