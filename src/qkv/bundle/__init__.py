"""Model bundles: directories that are written completely or not at all."""

from qkv.bundle.bundle import (
    CONFIG,
    TOKENIZER,
    WEIGHTS,
    AlignmentHeads,
    Bundle,
    export_checkpoint,
    export_gguf,
    fingerprint,
)
from qkv.bundle.manifest import BEST, MANIFEST, bundle_directory, publish, recover, verify

__all__ = [
    "BEST",
    "CONFIG",
    "MANIFEST",
    "TOKENIZER",
    "WEIGHTS",
    "AlignmentHeads",
    "Bundle",
    "bundle_directory",
    "export_checkpoint",
    "export_gguf",
    "fingerprint",
    "publish",
    "recover",
    "verify",
]
