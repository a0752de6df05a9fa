"""Models on disk, written whole or not at all."""

from qkv.bundle.bundle import Bundle

__all__ = ["Bundle"]
