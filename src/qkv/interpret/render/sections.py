"""What every written format shows of a walk, decided once: tables, marks and footnotes."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.matrix import format_number
from qkv.interpret.operation import Step, Walk
from qkv.interpret.walk import (
    Drift,
    Mistake,
    drifts,
    shown,
    shown_decimals,
    shown_inputs,
    uneven_rows,
)

ROUNDED, WRONG = "~", "✗"
LISTED = 12  # footnotes name so many cells and count the rest


@dataclass(frozen=True)
class Crop:
    """Which queries and keys are shown, and how many features of each; all if not given."""

    queries: tuple[int, ...] | None = None
    keys: tuple[int, ...] | None = None
    features: int | None = None

    def indices(self, axis: str, size: int) -> list[int]:
        """The places along an axis that are shown."""
        if axis in ("query", "key"):
            places = self.queries if axis == "query" else self.keys
            return list(range(size) if places is None else places)
        return list(range(size if self.features is None else min(size, self.features)))


@dataclass(frozen=True)
class WalkView:
    """A walk and how much of it is wanted.

    by_hand: mark every figure that a calculator gets differently from the figures shown.
    """

    walk: Walk
    precision: int = 4
    steps: tuple[str, ...] = ()  # all
    mistakes: tuple[Mistake, ...] = ()
    crop: Crop = Crop()
    mark_rounding: bool = True


@dataclass(frozen=True)
class TextTable:
    """The cells of a step as they are printed, marks included."""

    corner: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: list[list[str]]


@dataclass(frozen=True)
class Section:
    """One step on the page."""

    number: int
    step: Step
    table: TextTable
    footnotes: list[str]


def sections(look: WalkView) -> list[Section]:
    """The asked steps, numbered as in the whole walk."""
    asked = look.walk.select(look.steps)
    return [
        _section(look, step, number)
        for number, step in enumerate(look.walk, start=1)
        if step in asked
    ]


def cell_lines(look: WalkView, row: str, column: str) -> list[str]:
    """The arithmetic of every asked step that has this cell."""
    return [
        f"{step.cell_name(i, j)} = {_arithmetic(look.walk, step, i, j, look.precision)}"
        for step, i, j in look.walk.cells(row, column, look.steps)
    ]


def slip_line(walk: Walk, slip: Mistake, precision: int) -> str:
    """What is written, what is right, and how one gets there."""
    step, i, j = slip.step, slip.row, slip.column
    written = format_number(slip.written, slip.decimals)
    right = _arithmetic(walk, step, i, j, precision)
    return f"{slip.cell_name} is written {written} but is {right}"


def _section(look: WalkView, step: Step, number: int) -> Section:
    walk, precision = look.walk, look.precision
    slips = [slip for slip in look.mistakes if slip.step is step]
    found = drifts(walk, step, precision) if look.mark_rounding else []
    drifted = {(d.row, d.column): d for d in found}
    wrong = {(slip.row, slip.column) for slip in slips}
    digits = shown_decimals(step, precision)
    rows, columns = (
        look.crop.indices(axis, len(labels))
        for axis, labels in zip(step.axes, (step.rows, step.columns), strict=True)
    )
    values = shown(step, precision, rows, columns)
    cells = [
        [
            format_number(cell, digits) + ROUNDED * ((i, j) in drifted) + WRONG * ((i, j) in wrong)
            for j, cell in zip(columns, line, strict=True)
        ]
        for i, line in zip(rows, values, strict=True)
    ]
    corner = f"{step.axes[0]} ↓ {step.axes[1]} →" if step.axes[1] else ""
    named = tuple(step.rows[i] for i in rows), tuple(step.columns[j] for j in columns)
    table = TextTable(corner, *named, cells)
    notes = _left_out(step, rows, columns)
    if look.mark_rounding:
        notes += _rounding_notes(step, precision, drifted)
    notes += [f"{WRONG} {slip_line(walk, s, precision)}" for s in slips]
    return Section(number, step, table, notes)


def _left_out(step: Step, rows: list[int], columns: list[int]) -> list[str]:
    """What of the matrix is not shown."""
    hidden = len(step.rows) - len(rows), len(step.columns) - len(columns)
    told = [
        f"{count} {what}s"
        for count, what in zip(hidden, ("row", "column"), strict=True)
        if count > 0
    ]
    if not told:
        return []
    weight = step.name.endswith("weights") and hidden[1] > 0
    rest = step.value[rows].sum(axis=1) - step.value[np.ix_(rows, columns)].sum(axis=1)
    share = (
        f"; these columns hold at most {format_number(float(rest.max(initial=0.0)), 4)} of a row"
    )
    return [f"… {' and '.join(told)} are not shown{share if weight else ''}."]


def _rounding_notes(step: Step, precision: int, drifted: dict[tuple[int, int], Drift]) -> list[str]:
    notes = []
    if drifted:
        listed = [
            f"{format_number(drift.by_hand, precision)} at ({step.rows[i]}, {step.columns[j]})"
            for (i, j), drift in drifted.items()
        ]
        notes.append(
            f"{ROUNDED} These come from unrounded numbers; the shown ones give {_some(listed)}."
        )
    uneven = [
        f'{format_number(total, precision)} for "{step.rows[i]}"'
        for i, total in uneven_rows(step, precision)
    ]
    if uneven:
        notes.append(f"The shown figures of a row add up to {_some(uneven)}.")
    return notes


def _some(listed: list[str]) -> str:
    rest = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(listed[:LISTED]) + rest


def _arithmetic(walk: Walk, step: Step, i: int, j: int, precision: int) -> str:
    """The cell's terms as shown and its value; where these part in the last digit, both."""
    value = format_number(step.value[i, j], shown_decimals(step, precision))
    if step.is_input:
        return f"{value} ({'by definition' if step.name == 'mask' else 'given'})"
    inputs = shown_inputs(walk, step, precision)
    by_hand = format_number(
        step.operation.compute(*(shown.value for shown in inputs))[i, j], precision
    )
    for between in range(precision, precision + 9):  # until the steps in between lead there
        worked = step.operation.arithmetic(i, j, between, *inputs)
        if format_number(worked.result, precision) == by_hand:
            break
    return f"{worked.text} = {by_hand}" + (f"; from all digits {value}" * (by_hand != value))
