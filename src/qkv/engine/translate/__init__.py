"""Texts into texts of another language: translations, their alternatives and word alignments."""

from qkv.engine.translate.alignment import Link
from qkv.engine.translate.marking import Marking
from qkv.engine.translate.translate import translate
from qkv.engine.translate.translation import Alternative, Translation
from qkv.engine.translate.words import Word

__all__ = [
    "Alternative",
    "Link",
    "Marking",
    "Translation",
    "Word",
    "translate",
]
