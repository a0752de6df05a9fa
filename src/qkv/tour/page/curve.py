"""The learning curves that training has drawn, put into the page in its colours."""

from qkv.report.page import inline_picture
from qkv.report.progress import read_progress
from qkv.report.wording import course
from qkv.report.write import CURVES_SVG
from qkv.tour.outcome import Outcome


def curve(outcome: Outcome) -> str:
    """The picture, with its numbers in words below it."""
    svg = (outcome.place / CURVES_SVG).read_text("utf-8")
    return inline_picture(svg, _words(outcome), outcome.part.name)


def _words(outcome: Outcome) -> str:
    part = outcome.part
    progress = read_progress(outcome.lines, part.watched, part.higher_is_better)
    return course(progress, part.watched)
