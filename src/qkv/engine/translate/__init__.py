"""Texts into texts of another language: translations, their alternatives and word alignments."""

from qkv.engine.translate.alignment import Link, Word
from qkv.engine.translate.segments import TranslationTemplate
from qkv.engine.translate.translator import Alternative, Translation, translate

__all__ = [
    "Alternative",
    "Link",
    "Translation",
    "TranslationTemplate",
    "Word",
    "translate",
]
