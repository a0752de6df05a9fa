"""The training report as files: curves.svg, curves.png, and one HTML page without any script.

For a classifier the page shows its mistakes: the confusion matrix of a few labels, or the most
confused pairs of many.
"""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qkv.errors import UsageError
from qkv.report.curves import FAINT, INK, MUTED, TRAINING, VALIDATION, plot_curves
from qkv.report.html import (
    breakable,
    code,
    details,
    document,
    escape,
    paragraph,
    scrolling,
    section,
    table,
)
from qkv.report.summary import (
    LearningCurves,
    Table,
    TrainingReport,
    describe_curves,
    format_interval,
    format_score,
    headline,
    metric_name,
    optimism,
    read_curves,
    verdict,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVES_SVG = "curves.svg"
CURVES_PNG = "curves.png"
REPORT = "report.html"

MAX_MATRIX_LABELS = 12  # that a confusion matrix can hold

MAX_LEVEL_LABEL = 10  # characters of a label that is written across its column

MAX_PAIRS = 20  # of confused labels that are listed

HARDEST_LABELS = 15  # of many labels, those that are shown unfolded

# The picture's colours follow the page, light or dark.
COLOUR_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    FAINT: "var(--faint)",
    TRAINING: "var(--training)",
    VALIDATION: "var(--validation)",
    "#ffffff": "none",
}

Confusion = Sequence[Sequence[int]]  # a row per true label


def write_report(report: TrainingReport, folder: Path) -> None:
    """Write the three files into the folder; the same report gives the same bytes."""
    curves = read_curves(report.log, report.metric, report.higher_is_better)
    figure = plot_curves(curves, report.metric)
    svg = _render(figure, "svg")
    html = page(report, curves, svg.decode())
    files = {
        CURVES_SVG: svg,
        CURVES_PNG: _render(figure, "png"),
        # A lone surrogate, which files and generated text may hold, is written as its code.
        REPORT: html.encode("utf-8", "backslashreplace"),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        path = error.filename or folder
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def page(report: TrainingReport, curves: LearningCurves, svg: str) -> str:
    """The whole page, with the picture of the curves inline."""
    usage = ""
    if report.usage:
        usage = code("\n".join(report.usage))
    recipe = ""
    if report.recipe:
        recipe = details("recipe.toml", code(report.recipe))
    sections = (
        section(
            "How the training went", inline_picture(svg, describe_curves(curves, report.metric))
        ),
        section("Scores on validation data", _scores(report), _optimism(curves)),
        section("What to do next", usage),
        section("Labels and mistakes", confusion_report(report.labels, report.confusion)),
        section("Samples", *map(_sample, report.samples)),
        section("Data", _data(report.data), _remarks(report.remarks)),
        section("Recipe", recipe),
    )
    return document(report.job, report.title, verdict(report), sections)


def inline_picture(svg: str, caption: str, name: str = "") -> str:
    """The SVG inline, with the caption as its text alternative too.

    name: a prefix for every id in it, where a page has several pictures.
    """
    inline = svg[svg.index("<svg") :]
    inline = re.sub(r"\s*<(title|metadata)>.*?</\1>", "", inline, flags=re.DOTALL)
    inline = re.sub(r"font-family: [^;\"]+", "font-family: inherit", inline)
    inline = re.sub(r' (width|height)="[\d.]+pt"', "", inline)
    for colour, variable in COLOUR_VARIABLES.items():
        inline = inline.replace(colour, variable)
    prefix = ""
    if name:
        prefix = f"{name}-"
        for reference in ('id="', 'href="#', "url(#"):
            inline = inline.replace(reference, f"{reference}{prefix}")
    inline = inline.replace("<svg", f'<svg role="img" aria-labelledby="{prefix}course"', 1)
    figcaption = f'<figcaption id="{prefix}course">{escape(caption)}</figcaption>'
    return f"<figure>\n{inline.strip()}\n{figcaption}\n</figure>"


def _scores(report: TrainingReport) -> str:
    """All scores, the headline first, next to the baseline's if there is one."""
    baseline_name, baseline_scores = report.baseline or ("", {})
    metrics = dict.fromkeys((headline(report), report.metric, *report.scores, *baseline_scores))
    columns = ["score", "model"]
    if report.intervals:
        columns.append("95 % interval")
    if report.baseline:
        columns.append("baseline")
    rows = []
    for metric in metrics:
        if metric not in report.scores and metric not in baseline_scores:
            continue
        name = metric_name(metric)
        if metric == report.metric:
            name += " (selects the best weights)"
        row = [name, _optional_score(report.scores, metric)]
        if metric in report.intervals:
            row.append(format_interval(report.intervals[metric]))
        elif report.intervals:
            row.append("–")
        if report.baseline:
            row.append(_optional_score(baseline_scores, metric))
        rows.append(row)
    if not rows:
        return ""
    direction = "higher" if report.higher_is_better else "lower"
    note = f"A {direction} {metric_name(report.metric)} is better."
    if report.baseline:
        note = f"The baseline is {baseline_name}. {note}"
    return table("Final scores", columns, rows) + paragraph(note)


def _optimism(curves: LearningCurves) -> str:
    sentence = optimism(len(curves.evaluations))
    if not sentence:
        return ""
    return paragraph(sentence)


def _optional_score(scores: Mapping[str, float], metric: str) -> str:
    if metric not in scores:
        return "–"
    return format_score(scores[metric])


def _sample(sample: Table) -> str:
    return table(sample.title, sample.columns, sample.rows, texts=len(sample.columns))


def _data(data: Sequence[tuple[str, str]]) -> str:
    if not data:
        return ""
    return table("What it was trained on", ("what", "value"), data, texts=2)


def _remarks(remarks: Sequence[str]) -> str:
    if not remarks:
        return ""
    items = "\n".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return f"<h3>Worth knowing</h3>\n<ul>\n{items}\n</ul>"


def confusion_report(labels: Sequence[str], confusion: Confusion) -> str:
    """The confusion matrix or the most confused pairs, then every label; empty without labels."""
    if not confusion:
        return ""
    if len(labels) <= MAX_MATRIX_LABELS:
        overview = _confusion_matrix(labels, confusion)
    else:
        overview = _confused_pairs(labels, confusion)
    return f"{_error_count(confusion)}\n{overview}\n{_label_by_label(labels, confusion)}"


def _error_count(confusion: Confusion) -> str:
    total = sum(map(sum, confusion))
    errors = total - sum(row[i] for i, row in enumerate(confusion))
    if not errors:
        return paragraph(f"All {total:,} validation texts got their right label.")
    return paragraph(f"{errors:,} of {total:,} validation texts got a wrong label.")


def _label_by_label(labels: Sequence[str], confusion: Confusion) -> str:
    """Recall and precision; few labels in their order, of many the hardest first."""
    columns = ("label", "texts", "recall", "precision")
    rows = []
    for i, label in enumerate(labels):
        correct = confusion[i][i]
        texts = sum(confusion[i])
        predictions = sum(row[i] for row in confusion)
        rows.append((label, f"{texts:,}", _ratio(correct, texts), _ratio(correct, predictions)))
    note = paragraph(
        "Recall is the fraction of a label's texts that got it; precision is the fraction of the "
        "texts that got a label that truly have it."
    )
    if len(labels) <= MAX_MATRIX_LABELS:
        return table("Label by label", columns, rows) + note
    ranking = sorted(range(len(labels)), key=lambda i: (_recall(confusion, i), labels[i]))
    hardest = [rows[i] for i in ranking[:HARDEST_LABELS]]
    others = [rows[i] for i in ranking[HARDEST_LABELS:]]
    html = table(f"The {len(hardest)} labels with the lowest recall", columns, hardest) + note
    if others:
        title = f"The other {len(others)} labels"
        html += details(title, table(title, columns, others))
    return html


def _confusion_matrix(labels: Sequence[str], confusion: Confusion) -> str:
    """A row for each true label; the darker a cell, the larger its fraction of the row."""
    title = "Predictions for the texts of each label"
    # Long labels stand upright above their columns, so that the table fits the page.
    upright = ""
    if max(map(len, labels)) > MAX_LEVEL_LABEL:
        upright = " upright"
    head = "".join(
        f'<th scope="col" dir="auto"><span>{escape(label)}</span></th>' for label in labels
    )
    rows = []
    for i, (label, counts) in enumerate(zip(labels, confusion, strict=True)):
        cells = "".join(_matrix_cell(counts, i, j) for j in range(len(labels)))
        rows.append(f'<tr><th scope="row" dir="auto">{breakable(label)}</th>{cells}</tr>')
    body = "\n".join(rows)
    return scrolling(
        title,
        f'<table class="matrix{upright}">\n<caption>{title}</caption>\n'
        f'<thead><tr><th scope="col">true ↓ predicted →</th>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>",
    )


def _matrix_cell(counts: Sequence[int], i: int, j: int) -> str:
    fraction = counts[j] / max(1, sum(counts))
    css_class = ' class="right"' if i == j else ""
    return f'<td{css_class} style="--fraction:{fraction:.3f}">{counts[j]:,}</td>'


def _confused_pairs(labels: Sequence[str], confusion: Confusion) -> str:
    pairs = []
    for i, counts in enumerate(confusion):
        for j, count in enumerate(counts):
            if i != j and count:
                pairs.append((count, labels[i], labels[j], sum(counts)))
    if not pairs:
        return ""
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    title = f"All {len(pairs)} pairs that were confused"
    if len(pairs) > MAX_PAIRS:
        title = f"The {MAX_PAIRS} of {len(pairs):,} pairs that were confused most"
    rows = []
    for count, true, predicted, total in pairs[:MAX_PAIRS]:
        rows.append((true, predicted, f"{count:,}", _ratio(count, total)))
    columns = ("true label", "predicted", "texts", "fraction of the label")
    return table(title, columns, rows, texts=2)


def _recall(confusion: Confusion, i: int) -> float:
    """A label without texts was never missed, so it comes last among the hardest."""
    total = sum(confusion[i])
    if not total:
        return 1.0
    return confusion[i][i] / total


def _ratio(count: int, total: int) -> str:
    if not total:
        return "–"
    return format_score(count / total)


def _render(figure: "Figure", image_format: str) -> bytes:
    import matplotlib as mpl

    metadata = None
    if image_format == "svg":
        metadata = {"Date": None, "Title": "Training curves"}
    content = io.BytesIO()
    # No date and no random ids; letters as text, which is smaller than their outlines.
    with mpl.rc_context({"svg.hashsalt": "qkv", "svg.fonttype": "none"}):
        figure.savefig(content, format=image_format, dpi=150, metadata=metadata)
    return content.getvalue()
