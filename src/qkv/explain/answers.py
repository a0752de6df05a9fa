"""Somebody's results held against the right ones, cell by cell."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qkv.errors import WorksheetError, unknown
from qkv.explain.matrix import shape
from qkv.explain.step import Step, Walk
from qkv.explain.worksheet import Answer

FEWEST_DECIMALS = 2  # an answer is never held to less


@dataclass(frozen=True)
class Slip:
    """A cell that is not right."""

    step: Step
    row: int
    column: int
    written: float
    decimals: int

    @property
    def right(self) -> float:
        return float(self.step.value[self.row, self.column])

    @property
    def place(self) -> str:
        return self.step.place(self.row, self.column)


def compare(walk: Walk, answers: Mapping[str, Answer]) -> list[Slip]:
    """Every wrong cell, in the order of the steps. A cell that cannot be read is not judged."""
    names = {step.name for step in walk}
    for name, answer in answers.items():
        if name not in names:
            raise WorksheetError(unknown("step in answers", name, (step.name for step in walk)))
        if answer.value.shape != walk[name].value.shape:
            raise WorksheetError(
                f"answers.{name} is {shape(answer.value)} but {name} is {shape(walk[name].value)}"
            )
    return [slip for step in walk if step.name in answers for slip in _slips(step, answers)]


def _slips(step: Step, answers: Mapping[str, Answer]) -> list[Slip]:
    answer = answers[step.name]
    count = max(answer.decimals, FEWEST_DECIMALS)
    half_a_digit = 0.5 * 10.0**-count * (1 + 1e-9)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(answer.value - step.value) <= half_a_digit)
    wrong &= answer.value != step.value  # −∞ is −∞
    wrong &= ~np.isnan(answer.value)
    return [
        Slip(step, int(i), int(j), float(answer.value[i, j]), count) for i, j in np.argwhere(wrong)
    ]
