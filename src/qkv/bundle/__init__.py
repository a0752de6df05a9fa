"""Model bundles: directories that are written completely or not at all."""

from qkv.bundle.bundle import (
    TOKENIZER,
    AlignmentHeads,
    Bundle,
    export_checkpoint,
    export_gguf,
    fingerprint,
)
from qkv.bundle.manifest import MANIFEST, publish, recover, verify

__all__ = [
    "MANIFEST",
    "TOKENIZER",
    "AlignmentHeads",
    "Bundle",
    "export_checkpoint",
    "export_gguf",
    "fingerprint",
    "publish",
    "recover",
    "verify",
]
