"""What each head of a model looks at, how sharply, and whether it matters."""

from qkv.explain.head_stats.measure import SAMPLES, heads, judged
from qkv.explain.head_stats.patterns import HeadReport, Score, Twin

__all__ = ["SAMPLES", "HeadReport", "Score", "Twin", "heads", "judged"]
