"""The learning curves that training has drawn, put into the page in its colours."""

import re

from qkv.report.markup import escaped
from qkv.report.page import COLOURS
from qkv.report.progress import read_progress
from qkv.report.wording import course
from qkv.report.write import CURVES_SVG
from qkv.tour.outcome import Outcome


def curve(outcome: Outcome) -> str:
    """The picture, with its numbers in words below it."""
    svg = (outcome.place / CURVES_SVG).read_text("utf-8")
    name = outcome.part.name
    inline = re.sub(r"\s*<(title|metadata)>.*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    inline = re.sub(r"font-family: [^;\"]+", "font-family: inherit", inline)
    inline = re.sub(r' (width|height)="[\d.]+pt"', "", inline)
    for colour, variable in COLOURS.items():
        inline = inline.replace(colour, variable)
    for reference in ('id="', 'href="#', "url(#"):  # three pictures on a page, each with its own
        inline = inline.replace(reference, f"{reference}{name}-")
    inline = inline.replace("<svg", f'<svg role="img" aria-labelledby="{name}-course"', 1)
    caption = f'<figcaption id="{name}-course">{escaped(_words(outcome))}</figcaption>'
    return f"<figure>\n{inline.strip()}\n{caption}\n</figure>"


def _words(outcome: Outcome) -> str:
    part = outcome.part
    progress = read_progress(outcome.lines, part.watched, part.higher_is_better)
    return course(progress, part.watched)
