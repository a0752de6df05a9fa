"""From a worksheet to every step of its attention, each computed by its operation in float64.

No step needs torch, so that three words are explained at once; a test compares every step with
the reference kernel. The numbers are printed rounded. A reader who recomputes a step with a
calculator only has the printed figures, so wherever those lead to another last digit, the cell is
marked and both numbers are given (`rounding_differences`). Answers written into a worksheet are
checked cell by cell (`check_answers`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qkv.errors import WorksheetError, unknown
from qkv.interpret import wording
from qkv.interpret.matrix import (
    Matrix,
    column_labels,
    exact_decimals,
    format_shape,
    round_matrix,
    unique_labels,
)
from qkv.interpret.step import Walk, WalkStep
from qkv.interpret.trace.operations import (
    AttentionMask,
    ConcatHeads,
    DisplayMatrix,
    HeadScores,
    HeadWeightedSum,
    InputValue,
    MaskScores,
    MatMul,
    Operation,
    ScaleScores,
    Softmax,
)
from qkv.interpret.worksheet import AnswerMatrix, Worksheet

MIN_ANSWER_DECIMALS = 2  # answers written with fewer decimals are still checked to this many


def walk(sheet: Worksheet) -> Walk:
    """X, weights, Q, K, V, scores, scaled, mask, weights, output: each as a labelled matrix."""
    return _WorksheetWalk(sheet).build()


class _WorksheetWalk:
    """Builds the steps in order; the words of queries and keys label the rows and columns."""

    def __init__(self, sheet: Worksheet) -> None:
        self.sheet = sheet
        self.queries = unique_labels(sheet.tokens)
        self.keys = unique_labels(sheet.keys)
        self.steps: dict[str, WalkStep] = {}

    def build(self) -> Walk:
        self._add_inputs()
        for letter in ("q", "k", "v"):
            self._project(letter)
        for head in range(self.sheet.heads):
            self._add_head(head)
        self._join_heads()
        title = self.sheet.title or f'Attention for "{" ".join(self.queries)}"'
        return Walk(title, tuple(self.steps.values()))

    def _add_inputs(self) -> None:
        """The matrices of the worksheet: embeddings with a word per row, then the weights."""
        for name, words, letter in (
            ("x", self.queries, "x"),
            ("source_x", self.keys, "x"),
        ):
            if name in self.sheet.matrices:
                value = self.sheet.matrices[name]
                self._add_input(name, words, column_labels(letter, value.shape[1]), value)
        for name, row_letter, letter in (
            ("w_q", "x", "q"),
            ("w_k", "x", "k"),
            ("w_v", "x", "v"),
            ("v_down", "x", "r"),
            ("v_up", "r", "v"),
        ):
            if name in self.sheet.matrices:
                value = self.sheet.matrices[name]
                rows = column_labels(row_letter, len(value))
                self._add_input(name, rows, column_labels(letter, value.shape[1]), value)

    def _project(self, letter: str) -> None:
        """Q, K or V: taken from the worksheet, or the input times its weights."""
        matrices = self.sheet.matrices
        words = self.keys
        x = "x" if self.sheet.source is None else "source_x"
        if letter == "q":
            words = self.queries
            x = "x"
        # A worksheet may start from q, k and v instead of x and weights.
        if letter in matrices:
            value = matrices[letter]
            self._add_input(letter, words, column_labels(letter, value.shape[1]), value)
            return
        weight = f"w_{letter}"
        if letter == "v" and "v_down" in matrices:
            # V = X · V_down · V_up, with the low-rank product as a step of its own.
            rank = column_labels("r", matrices["v_down"].shape[1])
            self._add("v_narrow", words, rank, MatMul(), (x, "v_down"))
            x = "v_narrow"
            weight = "v_up"
        columns = column_labels(letter, matrices[weight].shape[1])
        self._add(letter, words, columns, MatMul(), (x, weight))

    def _add_head(self, head: int) -> None:
        """One head's scores, weights and output; a single head needs no number in its names."""
        sheet = self.sheet
        prefix = f"head{head + 1}." if sheet.heads > 1 else ""
        d_k = self.steps["q"].value.shape[1] // sheet.heads
        v_width = self.steps["v"].value.shape[1]
        d_v = v_width // sheet.heads

        def add_grid(name: str, operation: Operation, *inputs: str) -> str:
            self._add(prefix + name, self.queries, self.keys, operation, inputs)
            return prefix + name

        last = add_grid("scores", HeadScores(head * d_k, (head + 1) * d_k), "q", "k")
        if sheet.scaled:
            last = add_grid("scaled", ScaleScores(d_k**-0.5, d_k), last)
        if sheet.causal:
            self._add_mask()
            last = add_grid("masked", MaskScores(mask=True), last, "mask")
        weights = add_grid("weights", Softmax(), last)
        start = head * d_v
        stop = start + d_v
        columns = column_labels("o", v_width)[start:stop]
        operation = HeadWeightedSum(start, stop)
        self._add(prefix + "output", self.queries, columns, operation, (weights, "v"))

    def _add_mask(self) -> None:
        """The additive mask, which all heads share."""
        if "mask" in self.steps:
            return
        # The last query is aligned with the last key, as in the masks of models.
        keys = np.arange(len(self.keys))
        queries = np.arange(len(self.queries)) + len(self.keys) - len(self.queries)
        seen = AttentionMask(causal=True).compute(queries, keys)
        value = np.where(seen, 0.0, -np.inf)
        self._add_input("mask", self.queries, self.keys, value, "by definition")

    def _join_heads(self) -> None:
        heads = self.sheet.heads
        width = self.steps["v"].value.shape[1]
        # With a single head, its output already is the output of the attention.
        if heads > 1:
            outputs = tuple(f"head{head + 1}.output" for head in range(heads))
            self._add("output", self.queries, column_labels("o", width), ConcatHeads(), outputs)
        if "w_o" in self.sheet.matrices:
            w_o = self.sheet.matrices["w_o"]
            columns = column_labels("y", w_o.shape[1])
            self._add_input("w_o", column_labels("o", width), columns, w_o)
            self._add("projected", self.queries, columns, MatMul(), ("output", "w_o"))

    def _add(
        self,
        name: str,
        rows: tuple[str, ...],
        columns: tuple[str, ...],
        operation: Operation,
        inputs: tuple[str, ...],
    ) -> None:
        """A step that is computed from earlier ones."""
        with np.errstate(over="ignore", invalid="ignore"):  # `_check_finite` reports these
            value = operation.compute(*(self.steps[each].value for each in inputs))
        self._add_step(name, rows, columns, value, operation, inputs)

    def _add_input(
        self,
        name: str,
        rows: tuple[str, ...],
        columns: tuple[str, ...],
        value: Matrix,
        origin: str = "given",
    ) -> None:
        self._add_step(name, rows, columns, value, InputValue(origin), ())

    def _add_step(
        self,
        name: str,
        rows: tuple[str, ...],
        columns: tuple[str, ...],
        value: Matrix,
        operation: Operation,
        inputs: tuple[str, ...],
    ) -> None:
        step = wording.describe(name, rows, columns, value, operation, inputs, self.sheet)
        _check_finite(step)
        self.steps[name] = step


def _check_finite(step: WalkStep) -> None:
    """A WorksheetError if a step overflowed; −∞ is allowed in the mask and what it is added to."""
    allowed = np.isfinite(step.value)
    if step.name.endswith(("mask", "masked")):
        allowed |= np.isneginf(step.value)
    if not allowed.all():
        raise WorksheetError(f"{step.name} is too large to compute; use smaller numbers")


@dataclass(frozen=True)
class RoundingDifference:
    """A cell whose last printed digit does not follow from the figures printed above it."""

    row: int
    column: int
    recomputed: float  # what the printed figures give


def display_decimals(step: WalkStep, precision: int) -> int:
    """`precision`, or fewer for an input matrix that can be printed exactly with fewer."""
    if step.is_input:
        return exact_decimals(step.value, precision)
    return precision


def display_value(
    step: WalkStep,
    precision: int,
    rows: Sequence[int] | None = None,
    columns: Sequence[int] | None = None,
) -> Matrix:
    """The step's rounded numbers, of these rows and columns only if any are given."""
    value = step.value
    if rows is not None:
        value = value[list(rows)]
    if columns is not None:
        value = value[:, list(columns)]
    return round_matrix(value, display_decimals(step, precision))


def display_inputs(walk: Walk, step: WalkStep, precision: int) -> list[DisplayMatrix]:
    """What a reader can recompute the step from."""
    matrices = []
    for name in step.inputs:
        value = display_value(walk[name], precision)
        matrices.append(DisplayMatrix(value, display_decimals(walk[name], precision)))
    return matrices


def rounding_differences(walk: Walk, step: WalkStep, precision: int) -> list[RoundingDifference]:
    """Every cell of the step that a calculator gets differently from the printed figures."""
    if step.is_input:
        return []
    inputs = display_inputs(walk, step, precision)
    recomputed = step.operation.compute(*(matrix.value for matrix in inputs))
    recomputed = round_matrix(recomputed, precision)
    cells = np.argwhere(recomputed != display_value(step, precision))
    return [RoundingDifference(int(i), int(j), float(recomputed[i, j])) for i, j in cells]


def uneven_rows(step: WalkStep, precision: int) -> list[tuple[int, float]]:
    """Rows of attention weights whose printed figures do not sum to 1 exactly, with their sum.

    A query that sees no key has weights of zero and is left out.
    """
    if not step.name.endswith("weights"):
        return []
    sums = display_value(step, precision).sum(axis=1, keepdims=True)
    totals = round_matrix(sums, precision)[:, 0]
    attends = (step.value != 0.0).any(axis=1)
    uneven = np.flatnonzero(attends & (totals != 1.0))
    return [(int(row), float(totals[row])) for row in uneven]


@dataclass(frozen=True)
class Mistake:
    """A cell of the answers that differs from the computed step."""

    step: WalkStep
    row: int
    column: int
    answer: float
    decimals: int

    @property
    def expected(self) -> float:
        return float(self.step.value[self.row, self.column])

    @property
    def cell_name(self) -> str:
        return self.step.cell_name(self.row, self.column)


def check_answers(walk: Walk, answers: Mapping[str, AnswerMatrix]) -> list[Mistake]:
    """Every wrong cell, in the order of the steps. Blank and unreadable cells (NaN) are skipped.

    A number is right if it is the exact value rounded to the decimals it is written with, or what
    a calculator gives for the earlier steps rounded to as many.
    """
    names = walk.names
    for name, answer in answers.items():
        # Which steps there are depends on mask, heads and scale, so the parser cannot check this.
        if name not in names:
            message = unknown("step in answers", name, names)
            if "known: " not in message:
                message += f" The tables of this worksheet: {', '.join(names)}"
            raise WorksheetError(message)
        if answer.value.shape != walk[name].value.shape:
            raise WorksheetError(
                f"answers.{name} is {format_shape(answer.value)} "
                f"but {name} is {format_shape(walk[name].value)}"
            )
    mistakes = []
    for step in walk:
        if step.name in answers:
            mistakes += _mistakes(walk, step, answers[step.name])
    return mistakes


def _mistakes(walk: Walk, step: WalkStep, answer: AnswerMatrix) -> list[Mistake]:
    written = np.broadcast_to(answer.decimals, answer.value.shape)
    decimals = np.maximum(written, MIN_ANSWER_DECIMALS)
    right = np.isnan(answer.value)
    for count in np.unique(decimals):
        # Half a unit of the last digit, and a little more so that an exact half is accepted.
        tolerance = 0.5 * 10.0**-count * (1 + 1e-9)
        for value in (step.value, _value_from_rounded(walk, step, int(count))):
            with np.errstate(invalid="ignore"):
                near = np.abs(answer.value - value) <= tolerance
            near |= answer.value == value  # −∞ − −∞ is NaN, but −∞ is the right answer
            right |= near & (decimals == count)
    return [
        Mistake(step, int(i), int(j), float(answer.value[i, j]), int(decimals[i, j]))
        for i, j in np.argwhere(~right)
    ]


def _value_from_rounded(walk: Walk, step: WalkStep, decimals: int) -> Matrix:
    """The step as a calculator gets it from earlier steps with so many decimals."""
    if step.is_input:
        return step.value
    inputs = []
    for name in step.inputs:
        value = walk[name].value
        if not walk[name].is_input:
            value = round_matrix(value, decimals)
        inputs.append(value)
    return step.operation.compute(*inputs)
