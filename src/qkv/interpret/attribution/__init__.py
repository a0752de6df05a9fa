"""Why a model answered as it did, and how far each explanation is to be trusted."""

from qkv.interpret.attribution.answer import AnswerAttribution, AnswerWord, why_answer
from qkv.interpret.attribution.attribute import Attribution, SimilarityAttribution, why, why_similar
from qkv.interpret.attribution.attribution_text import (
    attribution_lines,
    format_signed,
    visible_word,
)
from qkv.interpret.attribution.faithfulness import Deletion, Faithfulness, faithfulness
from qkv.interpret.attribution.label import LabelAttribution, LabelWord, why_label
from qkv.interpret.attribution.readouts import last_attention, logit_lens
from qkv.interpret.attribution.token import TokenAttribution, why_token
from qkv.interpret.attribution.translation import (
    TargetWord,
    TranslationAttribution,
    why_translation,
)
from qkv.interpret.attribution.vector import VectorAttribution, why_vector

__all__ = [
    "AnswerAttribution",
    "AnswerWord",
    "Attribution",
    "Deletion",
    "Faithfulness",
    "LabelAttribution",
    "LabelWord",
    "SimilarityAttribution",
    "TargetWord",
    "TokenAttribution",
    "TranslationAttribution",
    "VectorAttribution",
    "attribution_lines",
    "faithfulness",
    "format_signed",
    "last_attention",
    "logit_lens",
    "visible_word",
    "why",
    "why_answer",
    "why_label",
    "why_similar",
    "why_token",
    "why_translation",
    "why_vector",
]
