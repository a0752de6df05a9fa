"""What a training run leaves for people: the learning curves, and one page about the model."""

from qkv.report.curves import plot_log
from qkv.report.html import details, document, escape, paragraph, scrolling, section, table
from qkv.report.page import CURVES_SVG, inline_picture, write_report
from qkv.report.summary import (
    Table,
    TrainingReport,
    describe_curves,
    format_interval,
    optimism,
    read_curves,
)

__all__ = [
    "CURVES_SVG",
    "Table",
    "TrainingReport",
    "describe_curves",
    "details",
    "document",
    "escape",
    "format_interval",
    "inline_picture",
    "optimism",
    "paragraph",
    "plot_log",
    "read_curves",
    "scrolling",
    "section",
    "table",
    "write_report",
]
