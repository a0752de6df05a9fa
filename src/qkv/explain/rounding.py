"""Do the printed figures reproduce each other? A reader with a calculator should not be misled.

A step is computed from all digits, but a reader only has the shown ones. Wherever the shown
figures would lead to another last digit, the cell is marked and both numbers are told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qkv.explain.matrix import Matrix, decimals, rounded
from qkv.explain.operation import Shown
from qkv.explain.step import Step, Walk


@dataclass(frozen=True)
class Drift:
    """A cell whose last shown digit does not follow from the figures shown above it."""

    row: int
    column: int
    by_hand: float  # from the shown figures


def shown_decimals(step: Step, precision: int) -> int:
    """A given matrix is shown as it was written, if that is short enough."""
    return decimals(step.value, precision) if step.given else precision


def shown(
    step: Step,
    precision: int,
    rows: Sequence[int] | None = None,
    columns: Sequence[int] | None = None,
) -> Matrix:
    """The figures of the step as a reader sees them; of some rows and columns if not all."""
    value = step.value if rows is None else step.value[list(rows)]
    value = value if columns is None else value[:, list(columns)]
    return rounded(value, shown_decimals(step, precision))


def shown_inputs(walk: Walk, step: Step, precision: int) -> list[Shown]:
    steps = (walk[name] for name in step.made_by.inputs)
    return [Shown(shown(made, precision), shown_decimals(made, precision)) for made in steps]


def drifts(walk: Walk, step: Step, precision: int) -> list[Drift]:
    """Every cell of the step that a calculator gets differently from the figures shown."""
    if step.given:
        return []
    inputs = shown_inputs(walk, step, precision)
    by_hand = rounded(step.made_by.compute(*(i.value for i in inputs)), precision)
    differs = by_hand != shown(step, precision)
    return [Drift(int(i), int(j), float(by_hand[i, j])) for i, j in np.argwhere(differs)]


def uneven_rows(step: Step, precision: int) -> list[tuple[int, float]]:
    """Rows of weights whose shown figures do not add up to 1 exactly, with their sum."""
    if not step.name.endswith("weights"):
        return []
    sums = rounded(shown(step, precision).sum(axis=1, keepdims=True), precision)[:, 0]
    sees = (step.value != 0.0).any(axis=1).tolist()
    return [(i, float(total)) for i, total in enumerate(sums) if sees[i] and total != 1.0]
