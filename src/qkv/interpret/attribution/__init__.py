"""Why a model answered as it did, and how far each explanation is to be trusted."""

from qkv.interpret.attribution.attribute import Reason, SimilarReason, why, why_similar
from qkv.interpret.attribution.faithfulness import Deletion, Faithfulness, faithfulness
from qkv.interpret.attribution.label import LabelReason, why_label
from qkv.interpret.attribution.token import TokenReason, why_token
from qkv.interpret.attribution.translation import TranslationReason, why_translation
from qkv.interpret.attribution.vector import VectorReason, why_vector

__all__ = [
    "Deletion",
    "Faithfulness",
    "LabelReason",
    "Reason",
    "SimilarReason",
    "TokenReason",
    "TranslationReason",
    "VectorReason",
    "faithfulness",
    "why",
    "why_label",
    "why_similar",
    "why_token",
    "why_translation",
    "why_vector",
]
