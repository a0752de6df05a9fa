"""The page of a walk: a worksheet's steps as tables, and the arithmetic of every cell on a click.

The tables and the panel next to them are the ones of a model's page; here the program has worked
out every line, so that the page computes nothing.
"""

from __future__ import annotations

import base64
from typing import Any

from qkv.errors import UsageError
from qkv.interpret.page.document import fill_template
from qkv.interpret.render import BLANK, StepSection, WalkView, cell_arithmetic, plain_text, sections
from qkv.interpret.step import Sentence, UserWord
from qkv.report import escape, paragraph, section, table

MAX_CELLS = 20_000  # with their arithmetic; a page with more would be too large to open


def render_walk_page(
    view: WalkView, *, summary: str = "", svg: bytes = b"", derivation: str = ""
) -> str:
    """The page as one HTML document.

    summary: a paragraph under the title. svg, derivation: a picture and lines after the steps.
    """
    steps = sections(view)
    cells = sum(each.step.value.size for each in steps)
    if cells > MAX_CELLS:
        raise UsageError(
            f"a page shows the arithmetic of at most {MAX_CELLS:,} cells, and these steps have "
            f"{cells:,}; choose fewer steps"
        )
    more = ""
    if svg:
        source = base64.b64encode(svg).decode()
        image = f'<img class="plot" alt="" src="data:image/svg+xml;base64,{source}">'
        more += section("Plot", image)
    if derivation:
        lines = f'<pre class="derivation" tabindex="0">{escape(derivation)}</pre>'
        more += section("Why", lines)
    return fill_template(
        "walk.html",
        script="walk",
        data={"steps": [_step_payload(view, each) for each in steps]},
        title=escape(view.walk.title),
        summary=paragraph(summary) if summary else "",
        plain="\n".join(map(_plain_table, steps)),
        more=more,
    )


def _step_payload(view: WalkView, section: StepSection) -> dict[str, Any]:
    step = section.step
    cells = [["?" if cell == BLANK else cell for cell in row] for row in section.table.cells]
    positions = [(i, j) for i in range(len(step.rows)) for j in range(len(step.columns))]
    wrong = [(each.row, each.column) for each in view.mistakes if each.step is step]
    return {
        "number": section.number,
        "name": step.name,
        "title": step.title,
        "equation": step.equation,
        "sentence": _sentence_payload(section.sentence),
        "notes": section.footnotes,
        "corner": section.table.corner,
        "rows": list(step.rows),
        "columns": list(step.columns),
        "cells": cells,
        "values": [[_number(cell) for cell in row] for row in step.value.tolist()],
        "blanks": [cell for cell in positions if view.is_blank(step, *cell)],
        "wrong": wrong,
        "arithmetic": [
            [
                cell_arithmetic(view.walk, step, i, j, view.precision)
                for j in range(len(step.columns))
            ]
            for i in range(len(step.rows))
        ],
        "probability": step.name.endswith("weights"),
    }


def _sentence_payload(sentence: Sentence) -> list[dict[str, Any]]:
    return [{"text": str(part), "isWord": isinstance(part, UserWord)} for part in sentence]


def _number(value: float) -> float | str:
    """JSON has no infinity; JavaScript reads the string."""
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _plain_table(step: StepSection) -> str:
    """The step for readers without scripts."""
    columns = [step.table.corner, *step.table.columns]
    rows = [[label, *row] for label, row in zip(step.table.rows, step.table.cells, strict=True)]
    caption = f"{step.number}. {step.step.title}: {step.step.equation}"
    notes = [plain_text(step.sentence), *step.footnotes]
    return table(caption, columns, rows) + "".join(map(paragraph, filter(None, notes)))
