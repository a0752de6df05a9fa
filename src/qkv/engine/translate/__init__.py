"""Texts into texts of another language: translations, their alternatives and word alignments."""

from qkv.engine.translate.alignment import (
    Link,
    Word,
    alignment_layer,
    cross_attention,
    decoded_spans,
)
from qkv.engine.translate.segments import Long, TranslationTemplate, segment_texts
from qkv.engine.translate.translator import Alternative, Translation, translate

__all__ = [
    "Alternative",
    "Link",
    "Long",
    "Translation",
    "TranslationTemplate",
    "Word",
    "alignment_layer",
    "cross_attention",
    "decoded_spans",
    "segment_texts",
    "translate",
]
