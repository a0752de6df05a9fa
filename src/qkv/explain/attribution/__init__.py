"""Why a model answered as it did, and how far each explanation is to be trusted."""

from qkv.explain.attribution.attribute import Reason, SimilarReason, why, why_similar
from qkv.explain.attribution.faithfulness import Deletion, Faithfulness, faithfulness
from qkv.explain.attribution.label import LabelReason, why_label
from qkv.explain.attribution.token import TokenReason, why_token
from qkv.explain.attribution.translation import TranslationReason, why_translation
from qkv.explain.attribution.vector import VectorReason, why_vector

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
