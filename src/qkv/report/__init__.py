"""What a training run leaves for people: the learning curves, and one page about the model."""

from qkv.report.curves import plot_log
from qkv.report.page import write_report
from qkv.report.summary import Table, TrainingReport

__all__ = ["Table", "TrainingReport", "plot_log", "write_report"]
