"""A walk for the terminal: aligned tables, folded where they would be wider than the screen.

For a head of a model the text goes on with the model's prediction, the effect of edits, and the
checks of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len

from qkv.interpret.render.sections import StepSection, TextTable, WalkView, sections
from qkv.interpret.step import Sentence, UserWord

if TYPE_CHECKING:  # these need torch, and a worksheet does without
    from qkv.interpret.glass_box import Prediction
    from qkv.interpret.trace import Trace, TraceCheck, TraceDifference

INDENT = "   "
MAX_VECTOR_NUMBERS = 6  # of a vector that a model answers with


def render_text(view: WalkView, width: int) -> str:
    """The walk in lines of at most `width` columns; a single wider cell is not broken."""
    title = wrap_line(view.walk.title, width)
    lines = [*title, "=" * max(map(len, title))]
    for section in sections(view):
        lines += ["", *_section_lines(section, width)]
    return "\n".join(line.rstrip() for line in lines)


def plain_text(sentence: Sentence) -> str:
    """The sentence with the reader's words between asterisks."""
    return "".join(f"*{part}*" if isinstance(part, UserWord) else part for part in sentence)


def _section_lines(section: StepSection, width: int) -> list[str]:
    step = section.step
    inner = width - len(INDENT)
    heading = f"{section.number}. {step.title}   {step.equation}   [{step.name}]"
    lines = [*wrap_line(heading, width), ""]
    lines += indent_lines(table_lines(section.table, inner))
    notes = [note for note in (plain_text(section.sentence), *section.footnotes) if note]
    if notes:
        lines.append("")
    for note in notes:
        lines += indent_lines(wrap_line(note, inner))
    return lines


def table_lines(table: TextTable, width: int) -> list[str]:
    """The table in as many blocks of columns as the width needs."""
    # cell_len counts columns of the terminal: a wide character takes two, a combining one none.
    label_width = max(cell_len(label) for label in (*table.rows, table.corner))
    widths = []
    for j, label in enumerate(table.columns):
        cells = [label, *(row[j] for row in table.cells)]
        widths.append(max(cell_len(cell) for cell in cells) + 2)
    lines: list[str] = []
    for block in _column_blocks(widths, width - label_width):
        if lines:
            lines.append("")
        head = "".join(_align_right(table.columns[j], widths[j]) for j in block)
        lines.append(_align_left(table.corner, label_width) + head)
        for label, row in zip(table.rows, table.cells, strict=True):
            cells_text = "".join(_align_right(row[j], widths[j]) for j in block)
            lines.append(_align_left(label, label_width) + cells_text)
    return lines


def _align_left(text: str, width: int) -> str:
    """Padded to this many columns of the terminal, where 詩 takes two."""
    return text + " " * (width - cell_len(text))


def _align_right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _column_blocks(widths: list[int], max_width: int) -> list[list[int]]:
    """Column indices in blocks that fit into the width; each block has at least one column."""
    blocks: list[list[int]] = [[]]
    total = 0
    for j, width in enumerate(widths):
        if blocks[-1] and total + width > max_width:
            blocks.append([])
            total = 0
        blocks[-1].append(j)
        total += width
    return blocks


def wrap_line(line: str, width: int) -> list[str]:
    """Lines of at most `width` characters; textwrap would also drop runs of spaces."""
    lines = []
    current = ""
    for word in line.split(" "):
        if not current:
            current = word
        elif len(current) + 1 + len(word) > width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}"
    return [*lines, current]


def indent_lines(lines: Iterable[str]) -> list[str]:
    """The lines as they stand below a heading."""
    return [INDENT + line for line in lines]


def render_model_text(
    view: WalkView, trace: Trace, difference: TraceDifference | None, width: int
) -> str:
    """The walk, the prediction, the effect of edits and the checks."""
    from qkv.interpret.glass_box import prediction_of

    lines = [render_text(view, width), "", *_prediction_lines(prediction_of(trace), width)]
    if difference is not None:
        lines += ["", *_difference_lines(difference, width)]
    lines += ["", "Checks", *indent_lines(check_lines(trace.checks))]
    return "\n".join(line.rstrip() for line in lines)


def check_lines(checks: tuple[TraceCheck, ...]) -> list[str]:
    """One line per check: whether it holds, the largest deviation, and where if it fails."""
    lines = []
    for check in checks:
        line = (
            f"{'✓' if check.ok else '✗'} {check.name:<32} worst {check.worst:.1e} of "
            f"{check.tolerance:.0e} allowed"
        )
        if not check.ok:
            line += f", at {check.location}"
        lines.append(line)
    return lines


def _prediction_lines(prediction: Prediction | None, width: int) -> list[str]:
    if prediction is None:
        return []
    if prediction.vector is not None:
        first = prediction.vector[:MAX_VECTOR_NUMBERS]
        text = ", ".join(f"{number:.4f}".replace("-", "−") for number in first)
        rest = len(prediction.vector) - len(first)
        if rest > 0:
            text += f", … {rest} more"
        return [prediction.title, f"{INDENT}{text}"]
    best = prediction.positions[-1].best
    names = tuple(each.name for each in best)
    cells = [[f"{each.probability:.4f}"] for each in best]
    table = TextTable("", names, ("probability",), cells)
    return [prediction.title, "", *indent_lines(table_lines(table, width - len(INDENT)))]


def _difference_lines(difference: TraceDifference, width: int) -> list[str]:
    """The first value that an edit changed, and how answers and layers changed."""
    lines = [f"What if: {', '.join(difference.edits)}", ""]
    if difference.first is None:
        return [*lines, f"{INDENT}nothing changed"]
    lines.append(f"{INDENT}the first value that differs: {difference.first}")
    if difference.cosine is not None:
        lines.append(f"{INDENT}cosine of the vectors before and after: {difference.cosine:.4f}")
    inner = width - len(INDENT)
    if difference.answers:
        names = tuple(change.name for change in difference.answers)
        cells = [[f"{each.before:.4f}", f"{each.after:.4f}"] for each in difference.answers]
        table = TextTable("", names, ("before", "after"), cells)
        lines += ["", *indent_lines(table_lines(table, inner))]
    if difference.layers:
        cells = [[f"{fraction:.3f}"] for fraction in difference.layers.values()]
        table = TextTable("after", tuple(difference.layers), ("|change| ÷ |state|",), cells)
        lines += ["", *indent_lines(table_lines(table, inner))]
    return lines
