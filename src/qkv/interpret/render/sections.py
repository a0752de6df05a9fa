"""What every text format shows of a walk, decided once: tables, marks and footnotes."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.attention_walk import (
    Mistake,
    RoundingDifference,
    display_decimals,
    display_inputs,
    display_value,
    rounding_differences,
    uneven_rows,
)
from qkv.interpret.matrix import format_number
from qkv.interpret.step import Sentence, Walk, WalkStep

BLANK = "____"  # a cell to be filled in
ROUNDING_MARK = "~"
MISTAKE_MARK = "✗"
MAX_LISTED_CELLS = 12  # footnotes name this many cells and count the rest
MAX_EXTRA_DECIMALS = 8  # for intermediate results, where fewer lead to another last digit


@dataclass(frozen=True)
class Crop:
    """The queries and keys to show, and how many features of each; None shows all."""

    queries: tuple[int, ...] | None = None
    keys: tuple[int, ...] | None = None
    features: int | None = None

    def indices(self, axis: str, size: int) -> list[int]:
        """The indices along an axis of this size that are shown."""
        # Positions are selected one by one; of features the first few are enough.
        positions = {"query": self.queries, "key": self.keys}.get(axis)
        if positions is not None:
            return list(positions)
        if axis in ("query", "key") or self.features is None:
            return list(range(size))
        return list(range(min(size, self.features)))


@dataclass(frozen=True)
class WalkView:
    """A walk and how much of it is shown.

    steps: their names, or all if empty. mark_rounding: mark every figure that a calculator gets
    differently from the printed ones. blanks: cells to be filled in, as step, row and column.
    """

    walk: Walk
    precision: int = 4
    steps: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    crop: Crop = Crop()
    mark_rounding: bool = True
    blanks: frozenset[tuple[str, int, int]] = frozenset()

    def is_blank(self, step: WalkStep, row: int, column: int) -> bool:
        """Whether the cell is to be filled in."""
        return (step.name, row, column) in self.blanks

    def has_blanks(self, step: WalkStep) -> bool:
        """Whether any cell of the step is to be filled in."""
        return any(name == step.name for name, _, _ in self.blanks)


@dataclass(frozen=True)
class TextTable:
    """The cells of a step as they are printed, marks included."""

    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: list[list[str]]


@dataclass(frozen=True)
class StepSection:
    """One step on the page."""

    number: int
    step: WalkStep
    table: TextTable
    sentence: Sentence  # empty where it could give away a blank cell
    footnotes: list[str]


def sections(view: WalkView) -> list[StepSection]:
    """The selected steps, numbered as in the complete walk."""
    selection = view.walk.select(view.steps)
    return [
        _section(view, step, number)
        for number, step in enumerate(view.walk, start=1)
        if step in selection
    ]


def cell_lines(view: WalkView, row: str, column: str) -> list[str]:
    """The arithmetic of this cell in every selected step that has it."""
    return [
        f"{step.cell_name(i, j)} = {cell_arithmetic(view.walk, step, i, j, view.precision)}"
        for step, i, j in view.walk.cells(row, column, view.steps)
    ]


def mistake_line(walk: Walk, mistake: Mistake, precision: int) -> str:
    """The answer, the right value, and the arithmetic that leads to it."""
    answer = format_number(mistake.answer, mistake.decimals)
    right = cell_arithmetic(walk, mistake.step, mistake.row, mistake.column, precision)
    return f"{mistake.cell_name} is written {answer} but is {right}"


def _section(view: WalkView, step: WalkStep, number: int) -> StepSection:
    mistakes = [mistake for mistake in view.mistakes if mistake.step is step]
    differences: list[RoundingDifference] = []
    if view.mark_rounding:
        differences = [
            each
            for each in rounding_differences(view.walk, step, view.precision)
            if not view.is_blank(step, each.row, each.column)
        ]
    rows = view.crop.indices(step.axes[0], len(step.rows))
    columns = view.crop.indices(step.axes[1], len(step.columns))
    marks = _marks(differences, mistakes)
    table = _table(view, step, rows, columns, marks)
    footnotes = _omissions(step, rows, columns)
    sentence = step.sentence
    if view.mark_rounding:
        footnotes += _rounding_notes(step, view.precision, differences)
    if view.has_blanks(step):
        sentence = ()
    elif view.mark_rounding:
        footnotes += _uneven_notes(step, view.precision)
    for mistake in mistakes:
        footnotes.append(f"{MISTAKE_MARK} {mistake_line(view.walk, mistake, view.precision)}")
    return StepSection(number, step, table, sentence, footnotes)


def _marks(
    differences: list[RoundingDifference], mistakes: list[Mistake]
) -> dict[tuple[int, int], str]:
    """What is printed after the number of a cell."""
    marks = {(each.row, each.column): ROUNDING_MARK for each in differences}
    for mistake in mistakes:
        cell = (mistake.row, mistake.column)
        marks[cell] = marks.get(cell, "") + MISTAKE_MARK
    return marks


def _table(
    view: WalkView,
    step: WalkStep,
    rows: list[int],
    columns: list[int],
    marks: dict[tuple[int, int], str],
) -> TextTable:
    values = display_value(step, view.precision, rows, columns)
    decimals = display_decimals(step, view.precision)
    cells = []
    for i, row in zip(rows, values, strict=True):
        texts = []
        for j, cell in zip(columns, row, strict=True):
            text = format_number(cell, decimals) + marks.get((i, j), "")
            if view.is_blank(step, i, j):
                text = BLANK
            texts.append(text)
        cells.append(texts)
    corner = ""
    if step.axes[1]:
        corner = f"{step.axes[0]} ↓ {step.axes[1]} →"
    row_labels = tuple(step.rows[i] for i in rows)
    column_labels = tuple(step.columns[j] for j in columns)
    return TextTable(corner, row_labels, column_labels, cells)


def _omissions(step: WalkStep, rows: list[int], columns: list[int]) -> list[str]:
    """A footnote on rows and columns that are not shown, and on the attention weight in them."""
    hidden_rows = len(step.rows) - len(rows)
    hidden_columns = len(step.columns) - len(columns)
    parts = []
    if hidden_rows > 0:
        parts.append(f"{hidden_rows} rows")
    if hidden_columns > 0:
        parts.append(f"{hidden_columns} columns")
    if not parts:
        return []
    note = f"… {' and '.join(parts)} are not shown"
    # How much attention a reader does not see.
    if step.name.endswith("weights") and hidden_columns > 0:
        rest = step.value[rows].sum(axis=1) - step.value[np.ix_(rows, columns)].sum(axis=1)
        weight = format_number(float(rest.max(initial=0.0)), 4)
        note += f"; these columns hold at most {weight} of a row"
    return [f"{note}."]


def _rounding_notes(
    step: WalkStep, precision: int, differences: list[RoundingDifference]
) -> list[str]:
    notes = []
    if differences:
        cells = [
            f"{format_number(each.recomputed, precision)} at "
            f"({step.rows[each.row]}, {step.columns[each.column]})"
            for each in differences
        ]
        notes.append(
            f"{ROUNDING_MARK} These come from unrounded numbers; "
            f"the shown ones give {_abridge(cells)}."
        )
    return notes


def _uneven_notes(step: WalkStep, precision: int) -> list[str]:
    uneven = [
        f'{format_number(total, precision)} for "{step.rows[i]}"'
        for i, total in uneven_rows(step, precision)
    ]
    if not uneven:
        return []
    return [f"The shown figures of a row add up to {_abridge(uneven)}."]


def _abridge(parts: list[str]) -> str:
    text = ", ".join(parts[:MAX_LISTED_CELLS])
    rest = len(parts) - MAX_LISTED_CELLS
    if rest > 0:
        text += f" and {rest} more"
    return text


def cell_arithmetic(walk: Walk, step: WalkStep, i: int, j: int, precision: int) -> str:
    """The cell worked out from printed numbers; with its exact value where the two differ."""
    value = format_number(step.value[i, j], display_decimals(step, precision))
    if step.is_input:
        return f"{value} ({step.operation.equation})"
    inputs = display_inputs(walk, step, precision)
    recomputed = step.operation.compute(*(matrix.value for matrix in inputs))
    result = format_number(recomputed[i, j], precision)
    # Rounding every intermediate result can shift the last digit of the sum. Then the intermediate
    # results get as many more decimals as it takes for the line to end in its own result.
    for decimals in range(precision, precision + MAX_EXTRA_DECIMALS + 1):
        arithmetic = step.operation.arithmetic(i, j, decimals, *inputs)
        if format_number(arithmetic.result, precision) == result:
            break
    line = f"{arithmetic.text} = {result}"
    if result != value:
        line += f"; from all digits {value}"
    return line
