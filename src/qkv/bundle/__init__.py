"""Models on disk, written whole or not at all."""

from qkv.bundle.bundle import Bundle, fingerprint

__all__ = ["Bundle", "fingerprint"]
