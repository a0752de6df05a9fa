"""Which labels are found and which are taken for each other, as parts of the page.

A few labels fit a matrix. Of many, only the pairs that are confused most can be read.
"""

from collections.abc import Sequence

from qkv.report.markup import breakable, folded, paragraph, scrolling, table
from qkv.report.wording import figure

MATRIX = 12  # labels that a matrix can hold
PAIRS = 20  # confused pairs that are listed
HARDEST = 15  # of many labels, those that are shown unfolded

Confusion = Sequence[Sequence[int]]


def mistakes(labels: Sequence[str], confusion: Confusion) -> str:
    """The labels one by one, then the matrix or the most confused pairs; empty without labels."""
    if not confusion:
        return ""
    matrix = len(labels) <= MATRIX
    shown = _matrix(labels, confusion) if matrix else _pairs(labels, confusion)
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
        right, count = confusion[at][at], sum(confusion[at])
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
    all_of = f"All {len(found)}" if len(found) <= PAIRS else f"The {PAIRS} of {len(found):,}"
    most = "pairs that were confused" + " most" * (len(found) > PAIRS)
    columns = ("true label", "was given", "texts", "share of the label")
    return table(f"{all_of} {most}", columns, rows[:PAIRS], texts=2)


def _recall(confusion: Confusion, at: int) -> float:
    """A label without texts was not missed, so it comes last among the hardest."""
    return confusion[at][at] / sum(confusion[at]) if sum(confusion[at]) else 1.0


def _share(part: int, whole: int) -> str:
    return figure(part / whole) if whole else "–"
