"""What each head of a model looks at, how sharply, and whether it matters."""

from qkv.interpret.head_stats.measure import SAMPLES, heads, judged
from qkv.interpret.head_stats.patterns import HeadReport, Score, Twin

__all__ = ["SAMPLES", "HeadReport", "Score", "Twin", "heads", "judged"]
