"""What each head of a model looks at, how sharply, and whether it matters."""

from qkv.explain.heads.judge import heads, judged
from qkv.explain.heads.report import HeadReport, Score, Twin
from qkv.explain.heads.samples import SAMPLES

__all__ = ["SAMPLES", "HeadReport", "Score", "Twin", "heads", "judged"]
