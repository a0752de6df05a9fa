"""Model bundles: directories that are written completely or not at all."""

from qkv.bundle.bundle import CONFIG, TOKENIZER, WEIGHTS, Bundle, export_checkpoint, fingerprint
from qkv.bundle.manifest import BEST, MANIFEST, bundle_directory, publish, recover, verify

__all__ = [
    "BEST",
    "CONFIG",
    "MANIFEST",
    "TOKENIZER",
    "WEIGHTS",
    "Bundle",
    "bundle_directory",
    "export_checkpoint",
    "fingerprint",
    "publish",
    "recover",
    "verify",
]
