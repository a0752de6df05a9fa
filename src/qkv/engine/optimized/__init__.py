"""The same model arranged to answer sooner: fewer, larger products, and whole numbers if asked."""

from qkv.engine.optimized.optimize import has_twin, quicken
from qkv.engine.optimized.quantized import int8_works

__all__ = ["has_twin", "int8_works", "quicken"]
