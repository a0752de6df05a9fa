"""Why a model answered as it did, and how far each explanation is to be trusted."""

from qkv.explain.why.ask import Reason, why
from qkv.explain.why.faithfulness import Deletion, Faithfulness, faithfulness
from qkv.explain.why.label import why_label
from qkv.explain.why.label_reason import LabelReason
from qkv.explain.why.similar import SimilarReason, why_similar
from qkv.explain.why.token import why_token
from qkv.explain.why.token_reason import TokenReason
from qkv.explain.why.translation import why_translation
from qkv.explain.why.translation_reason import TranslationReason
from qkv.explain.why.vector import VectorReason, why_vector

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
