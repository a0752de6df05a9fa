"""Texts into texts of another language: translations, their alternatives and word alignments."""

from qkv.engine.translate.alignment import (
    Link,
    Word,
    cross_attention,
    decoded_spans,
    heads_of_layer,
)
from qkv.engine.translate.alignment_choice import (
    Sentence,
    choose_alignment,
    choose_alignment_on_texts,
    forced_log_probs,
)
from qkv.engine.translate.segments import Long, TranslationTemplate, segment_texts
from qkv.engine.translate.translator import Alternative, Translation, translate

__all__ = [
    "Alternative",
    "Link",
    "Long",
    "Sentence",
    "Translation",
    "TranslationTemplate",
    "Word",
    "choose_alignment",
    "choose_alignment_on_texts",
    "cross_attention",
    "decoded_spans",
    "forced_log_probs",
    "heads_of_layer",
    "segment_texts",
    "translate",
]
