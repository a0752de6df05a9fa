"""Numbers about answers: how good labels, translations, similarities and clusters are."""

from qkv.metrics.classification import (
    LabelScore,
    LabelScores,
    WordCountClassifier,
    bag_of_words,
    out_of_fold_probs,
    score_labels,
    wilson_interval,
)
from qkv.metrics.text_scores import (
    ClusterScores,
    LatentSemanticAnalysis,
    TranslationScores,
    bag_of_words_vectors,
    neighbour_overlap,
    score_clusters,
    score_halves,
    score_translations,
    sentence_chrf,
    spearman,
)

__all__ = [
    "ClusterScores",
    "LabelScore",
    "LabelScores",
    "LatentSemanticAnalysis",
    "TranslationScores",
    "WordCountClassifier",
    "bag_of_words",
    "bag_of_words_vectors",
    "neighbour_overlap",
    "out_of_fold_probs",
    "score_clusters",
    "score_halves",
    "score_labels",
    "score_translations",
    "sentence_chrf",
    "spearman",
    "wilson_interval",
]
