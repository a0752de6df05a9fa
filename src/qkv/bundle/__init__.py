"""Model bundles: directories that are written completely or not at all."""

from qkv.bundle.bundle import TOKENIZER, Bundle, export_checkpoint, fingerprint
from qkv.bundle.manifest import MANIFEST, publish, recover, verify

__all__ = [
    "MANIFEST",
    "TOKENIZER",
    "Bundle",
    "export_checkpoint",
    "fingerprint",
    "publish",
    "recover",
    "verify",
]
