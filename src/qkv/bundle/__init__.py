"""Model bundles: directories that are written completely or not at all."""

from qkv.bundle.bundle import Bundle, fingerprint

__all__ = ["Bundle", "fingerprint"]
