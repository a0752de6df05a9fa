"""A piece of explanation that comes with the trace: a sentence, a table, how far to trust it."""

from collections.abc import Sequence
from dataclasses import dataclass

from qkv.explain.matrix import figure
from qkv.report.markup import paragraph, section, table

Cell = str | float


@dataclass(frozen=True)
class Section:
    """What stands under one heading; whatever is empty is left out.

    faithfulness: what deleting the things named does to the answer, against random ones; a
    paragraph a line.
    """

    title: str
    lead: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    faithfulness: str = ""


def section_markup(shown: Section) -> str:
    """The section as HTML in which nothing that a text holds can act."""
    trust = "\n".join(map(paragraph, shown.faithfulness.splitlines()))
    inside = section(
        shown.title,
        paragraph(shown.lead) if shown.lead else "",
        _table(shown),
        f'<div class="trust">{trust}</div>' if trust else "",
    )
    return f'<div class="why">\n{inside}\n</div>'


def _table(shown: Section) -> str:
    if not shown.rows:
        return ""
    return table(
        shown.title,
        shown.columns,
        [
            [cell if isinstance(cell, str) else figure(cell, 4) for cell in row]
            for row in shown.rows
        ],
        texts=_texts(shown.rows),
    )


def _texts(rows: Sequence[tuple[Cell, ...]]) -> int:
    """How many columns from the left hold words rather than numbers."""
    words = [any(isinstance(row[at], str) for row in rows) for at in range(len(rows[0]))]
    return words.index(False) if False in words else len(words)
