"""The files of a report: the curves by themselves, and the page that holds everything."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.errors import UsageError
from qkv.report.curves import draw
from qkv.report.page import page
from qkv.report.progress import read_progress
from qkv.report.story import Story

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES_SVG, CURVES_PNG, REPORT = "curves.svg", "curves.png", "report.html"


def write_report(story: Story, folder: Path) -> None:
    """curves.svg, curves.png and report.html in the folder; the same story, the same bytes."""
    progress = read_progress(story.lines, story.metric, story.higher_is_better)
    picture = draw(progress, story.metric)
    svg = _rendered(picture, "svg")
    files = {
        CURVES_SVG: svg,
        CURVES_PNG: _rendered(picture, "png"),
        # A lone surrogate, which files may hold and generated text may too, is shown as its code.
        REPORT: page(story, progress, svg.decode()).encode("utf-8", "backslashreplace"),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    except OSError as error:
        place = error.filename or folder
        raise UsageError(f"cannot write {place}: {error.strerror or error}") from error


def _rendered(picture: "Figure", form: str) -> bytes:
    import matplotlib as mpl

    content = io.BytesIO()
    # No date and no random ids; letters as text, which is smaller than their outlines.
    with mpl.rc_context({"svg.hashsalt": "qkv", "svg.fonttype": "none"}):
        metadata = {"Date": None, "Title": "Training curves"} if form == "svg" else None
        picture.savefig(content, format=form, dpi=150, metadata=metadata)
    return content.getvalue()
