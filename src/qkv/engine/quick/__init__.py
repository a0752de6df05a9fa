"""The same model arranged to answer sooner: fewer, larger products, and whole numbers if asked."""

from qkv.engine.quick.twin import quicken

__all__ = ["quicken"]
