"""What each head of a model looks at, how sharply, and whether it matters."""

from qkv.interpret.head_stats.measure import SAMPLE_TEXTS, measure_heads, measure_heads_on_ids
from qkv.interpret.head_stats.patterns import HeadReport, Score, Twin

__all__ = ["SAMPLE_TEXTS", "HeadReport", "Score", "Twin", "measure_heads", "measure_heads_on_ids"]
