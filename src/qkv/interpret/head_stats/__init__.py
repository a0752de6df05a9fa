"""What each attention head of a model attends to, how sharply, and whether it matters."""

from qkv.interpret.head_stats.measure import SAMPLE_TEXTS, measure_heads, measure_heads_on_ids
from qkv.interpret.head_stats.patterns import HeadReport, PatternScore, SimilarHead, head_table

__all__ = [
    "SAMPLE_TEXTS",
    "HeadReport",
    "PatternScore",
    "SimilarHead",
    "head_table",
    "measure_heads",
    "measure_heads_on_ids",
]
