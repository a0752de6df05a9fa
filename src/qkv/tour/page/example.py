"""The worked example as tables."""

from qkv.explain.examples import POEM
from qkv.explain.render.page import Look, Section, sections
from qkv.explain.render.text import say
from qkv.explain.walk import walk
from qkv.report.markup import escaped, paragraph, table

STEPS = ("scores", "scaled", "weights", "output")


def example() -> list[str]:
    """A sentence on what attention does, and the steps that do it."""
    walked = walk(POEM)
    lead = paragraph(
        f"{walked.title}: every query is compared with every key, the scores are divided by √d_k "
        "and become weights that sum to 1, and the output is the weighted mean of the values."
    )
    return [lead, *map(_step, sections(Look(walked, steps=STEPS)))]


def _step(shown: Section) -> str:
    title = f"{shown.number}. {shown.step.title}: {shown.step.equation}"
    rows = [[name, *cells] for name, cells in zip(shown.table.rows, shown.table.cells, strict=True)]
    whole = table(title, (shown.table.corner, *shown.table.columns), rows)
    notes = [say(shown.step.sentence).replace("*", ""), *shown.footnotes]
    return whole + "".join(f'<p class="note">{escaped(note)}</p>' for note in notes)
