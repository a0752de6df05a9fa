"""What a training run leaves for people: curves and one page that tells the whole story."""

from qkv.report.curves import curves
from qkv.report.page import write_report
from qkv.report.summary import Story, Table

__all__ = ["Story", "Table", "curves", "write_report"]
