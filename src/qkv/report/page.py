"""The report as one HTML page: no network, no script, nothing beside it needed."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.errors import UsageError
from qkv.report.curves import FAINT, HELD_OUT, INK, MUTED, TRAINING, draw
from qkv.report.html import (
    breakable,
    code,
    document,
    escaped,
    folded,
    paragraph,
    scrolling,
    section,
    table,
)
from qkv.report.summary import Progress, Story, Table, course, figure, name, read_progress, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# FOLDED report/mistakes: Which labels are found and which are taken for each other, as parts of
#   the page.
#
#   A few labels fit a matrix. Of many, only the pairs that are confused most can be read.
# FOLDED report/write: The files of a report: the curves by themselves, and the page that holds
#   everything.

MATRIX = 12  # labels that a matrix can hold

PAIRS = 20  # confused pairs that are listed

HARDEST = 15  # of many labels, those that are shown unfolded

Confusion = Sequence[Sequence[int]]


def mistakes(labels: Sequence[str], confusion: Confusion) -> str:
    """The labels one by one, then the matrix or the most confused pairs; empty without labels."""
    if not confusion:
        return ""
    matrix = len(labels) <= MATRIX
    if matrix:
        shown = _matrix(labels, confusion)
    else:
        shown = _pairs(labels, confusion)
    return f"{_summary(confusion)}\n{shown}\n{_each(labels, confusion)}"


def _summary(confusion: Confusion) -> str:
    total = sum(map(sum, confusion))
    wrong = total - sum(row[at] for at, row in enumerate(confusion))
    if not wrong:
        return paragraph(f"All {total:,} held-out texts got their right label.")
    return paragraph(f"{wrong:,} of {total:,} held-out texts got a wrong label.")


def _each(labels: Sequence[str], confusion: Confusion) -> str:
    """Label by label, in the given order if they are few, the hardest first if they are many."""
    columns = ("label", "texts", "found", "right when given")
    rows = []
    for at, label in enumerate(labels):
        right = confusion[at][at]
        count = sum(confusion[at])
        given = sum(row[at] for row in confusion)
        rows.append((label, f"{count:,}", _share(right, count), _share(right, given)))
    note = paragraph(
        "Found (recall) is the share of a label's texts that got it; right when given "
        "(precision) is the share of the texts given a label that truly have it."
    )
    if len(labels) <= MATRIX:
        return table("Label by label", columns, rows) + note
    ranked = sorted(range(len(labels)), key=lambda at: (_recall(confusion, at), labels[at]))
    hardest, others = ([rows[at] for at in part] for part in (ranked[:HARDEST], ranked[HARDEST:]))
    result = table(f"The {len(hardest)} labels that are found least", columns, hardest) + note
    if others:
        title = f"The other {len(others)} labels"
        result += folded(title, table(title, columns, others))
    return result


def _matrix(labels: Sequence[str], confusion: Confusion) -> str:
    """A row for each true label; the darker a cell, the larger its share of the row."""
    title = "What was given to the texts of each label"
    head = "".join(f'<th scope="col" dir="auto">{breakable(label)}</th>' for label in labels)
    body = "\n".join(
        f'<tr><th scope="row" dir="auto">{breakable(label)}</th>'
        + "".join(_cell(row, i, j) for j in range(len(labels)))
        + "</tr>"
        for i, (label, row) in enumerate(zip(labels, confusion, strict=True))
    )
    return scrolling(
        title,
        f'<table class="matrix">\n<caption>{title}</caption>\n'
        f'<thead><tr><th scope="col">true ↓ given →</th>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>",
    )


def _cell(row: Sequence[int], i: int, j: int) -> str:
    share = row[j] / sum(row) if sum(row) else 0.0
    right = ' class="right"' if i == j else ""
    return f'<td{right} style="--share:{share:.3f}">{row[j]:,}</td>'


def _pairs(labels: Sequence[str], confusion: Confusion) -> str:
    found = sorted(
        (-count, labels[i], labels[j], sum(row))
        for i, row in enumerate(confusion)
        for j, count in enumerate(row)
        if i != j and count
    )
    if not found:
        return ""
    rows = [(true, given, f"{-less:,}", _share(-less, total)) for less, true, given, total in found]
    if len(found) <= PAIRS:
        all_of = f"All {len(found)}"
    else:
        all_of = f"The {PAIRS} of {len(found):,}"
    most = "pairs that were confused" + " most" * (len(found) > PAIRS)
    columns = ("true label", "was given", "texts", "share of the label")
    return table(f"{all_of} {most}", columns, rows[:PAIRS], texts=2)


def _recall(confusion: Confusion, at: int) -> float:
    """A label without texts was not missed, so it comes last among the hardest."""
    if sum(confusion[at]):
        return confusion[at][at] / sum(confusion[at])
    return 1.0


def _share(part: int, whole: int) -> str:
    if whole:
        return figure(part / whole)
    return "–"


# The picture's colours follow the page, light or dark.
COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    FAINT: "var(--faint)",
    TRAINING: "var(--training)",
    HELD_OUT: "var(--held-out)",
    "#ffffff": "none",
}


def page(story: Story, progress: Progress, svg: str) -> str:
    """The whole page, with the picture of the curves drawn into it."""
    sections = (
        section("How the training went", inline_picture(svg, course(progress, story.metric))),
        section("Scores on held-out data", _scores(story)),
        section("Labels and mistakes", mistakes(story.labels, story.confusion)),
        section("Samples", *map(_sample, story.samples)),
        section("Data", _data(story.data), _remarks(story.remarks)),
        section("How to use it", code("\n".join(story.use)) if story.use else ""),
        section("Recipe", folded("recipe.toml", code(story.recipe)) if story.recipe else ""),
    )
    return document(story.job, story.title, verdict(story), sections)


def inline_picture(svg: str, words: str, name: str = "") -> str:
    """The picture inline, with the words below it as its text alternative too.

    name: goes before every id of it, where a page has several pictures.
    """
    inline = svg[svg.index("<svg") :]
    inline = re.sub(r"\s*<(title|metadata)>.*?</\1>", "", inline, flags=re.DOTALL)
    inline = re.sub(r"font-family: [^;\"]+", "font-family: inherit", inline)
    inline = re.sub(r' (width|height)="[\d.]+pt"', "", inline)
    for colour, variable in COLOURS.items():
        inline = inline.replace(colour, variable)
    own = f"{name}-" if name else ""
    for reference in ('id="', 'href="#', "url(#") if name else ():
        inline = inline.replace(reference, f"{reference}{own}")
    inline = inline.replace("<svg", f'<svg role="img" aria-labelledby="{own}course"', 1)
    caption = f'<figcaption id="{own}course">{escaped(words)}</figcaption>'
    return f"<figure>\n{inline.strip()}\n{caption}\n</figure>"


def _scores(story: Story) -> str:
    """All scores, the watched one first, with the baseline's beside them if there is one."""
    what, theirs = story.baseline or ("", {})
    known = dict.fromkeys((story.metric, *story.scores, *theirs))
    names = [each for each in known if each in story.scores or each in theirs]
    if not names:
        return ""
    columns = ["score", "model"]
    if story.baseline:
        columns.append("baseline")
    rows = [
        (
            name(each) + " (watched)" * (each == story.metric),
            *(
                figure(of[each]) if each in of else "–"
                for of in (story.scores, theirs)[: len(columns) - 1]
            ),
        )
        for each in names
    ]
    if story.higher_is_better:
        direction = "higher"
    else:
        direction = "lower"
    note = f"Of the {name(story.metric)}, {direction} is better."
    return table("Final scores", columns, rows) + paragraph(
        f"The baseline is {what}. {note}" if story.baseline else note
    )


def _sample(sample: Table) -> str:
    return table(sample.title, sample.columns, sample.rows, texts=len(sample.columns))


def _data(data: Sequence[tuple[str, str]]) -> str:
    if data:
        return table("What it learned from", ("what", "value"), data, texts=2)
    return ""


def _remarks(remarks: Sequence[str]) -> str:
    items = "\n".join(f"<li>{escaped(remark)}</li>" for remark in remarks)
    if remarks:
        return f"<h3>Worth knowing</h3>\n<ul>\n{items}\n</ul>"
    return ""


CURVES_SVG = "curves.svg"
CURVES_PNG = "curves.png"
REPORT = "report.html"


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
        if form == "svg":
            metadata = {"Date": None, "Title": "Training curves"}
        else:
            metadata = None
        picture.savefig(content, format=form, dpi=150, metadata=metadata)
    return content.getvalue()
