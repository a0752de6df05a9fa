"""Answers as a teacher marks them: right, wrong with a hint, or blank."""

import numpy as np

from qkv.interpret.matrix import Matrix, format_number
from qkv.interpret.render.formats import answers_summary
from qkv.interpret.render.sections import (
    BLANK,
    MISTAKE_MARK,
    TextTable,
    WalkView,
    cell_arithmetic,
)
from qkv.interpret.render.terminal_text import indent_lines, table_lines, wrap_line
from qkv.interpret.step import WalkStep
from qkv.interpret.worksheet import AnswerMatrix, Worksheet

RIGHT_MARK = "✓"


def render_marks(view: WalkView, sheet: Worksheet, width: int) -> str:
    """A table of each step with answers, and below it how to work out what is wrong.

    A step that is blank altogether is left out; the last line counts its cells.
    """
    lines = wrap_line(view.walk.title, width)
    for step in view.walk:
        if step.name in sheet.answers and not np.isnan(sheet.answers[step.name].value).all():
            heading = f"{step.title}   {step.equation}   [{step.name}]"
            lines += ["", *wrap_line(heading, width), ""]
            lines += indent_lines(_marked_lines(view, step, sheet.answers[step.name], width - 3))
    summary = wrap_line(answers_summary(view, sheet), width)
    return "\n".join(line.rstrip() for line in [*lines, "", *summary])


def _marked_lines(view: WalkView, step: WalkStep, answer: AnswerMatrix, width: int) -> list[str]:
    mistakes = [mistake for mistake in view.mistakes if mistake.step is step]
    wrong = {(mistake.row, mistake.column) for mistake in mistakes}
    decimals = np.broadcast_to(answer.decimals, answer.value.shape)
    cells = []
    for i, row in enumerate(answer.value):
        marks = [MISTAKE_MARK if (i, j) in wrong else RIGHT_MARK for j in range(len(row))]
        cells.append(_marked_row(row, decimals[i], marks))
    lines = table_lines(TextTable("", step.rows, step.columns, cells), width)
    if mistakes:
        lines.append("")
    for mistake in mistakes:
        number = format_number(mistake.answer, mistake.decimals)
        hint = _hint(view, step, mistake.row, mistake.column)
        line = f"{MISTAKE_MARK} {mistake.cell_name} is not {number}; work out {hint}"
        lines += wrap_line(line, width)
    return lines


def _marked_row(row: Matrix, decimals: Matrix, marks: list[str]) -> list[str]:
    texts = []
    for cell, count, mark in zip(row, decimals, marks, strict=True):
        text = BLANK
        if not np.isnan(cell):
            text = f"{format_number(float(cell), int(count))} {mark}"
        texts.append(text)
    return texts


def _hint(view: WalkView, step: WalkStep, row: int, column: int) -> str:
    """The arithmetic up to its first result."""
    return cell_arithmetic(view.walk, step, row, column, view.precision).split(" = ")[0]
