"""Numbers about answers: how good labels, translations, similarities and clusters are."""

from qkv.measure.clusters import ClusterScores, bag_of_words_vectors, score_clusters
from qkv.measure.labels import LabelScore, LabelScores, score_labels
from qkv.measure.similarity import spearman
from qkv.measure.translations import TranslationScores, score_translations
from qkv.measure.words import bag_of_words

__all__ = [
    "ClusterScores",
    "LabelScore",
    "LabelScores",
    "TranslationScores",
    "bag_of_words",
    "bag_of_words_vectors",
    "score_clusters",
    "score_labels",
    "score_translations",
    "spearman",
]
