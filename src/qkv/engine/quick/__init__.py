"""The same model arranged to answer sooner: fewer, larger products, and whole numbers if asked."""

from qkv.engine.quick.int8 import int8_works
from qkv.engine.quick.twin import has_twin, quicken

__all__ = ["has_twin", "int8_works", "quicken"]
