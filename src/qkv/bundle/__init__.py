"""Models on disk, written whole or not at all."""

from qkv.bundle.bundle import Bundle, hash_of, load

__all__ = ["Bundle", "hash_of", "load"]
