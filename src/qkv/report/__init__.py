"""What a training run leaves for people: curves and one page that tells the whole story."""

from qkv.report.curves import curves
from qkv.report.story import Story, Table
from qkv.report.write import write_report

__all__ = ["Story", "Table", "curves", "write_report"]
