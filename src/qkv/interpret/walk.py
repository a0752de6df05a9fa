"""From a worksheet to every step of its attention, with numbers from the attention kernel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qkv.attention import AttentionSteps, Mask, project_low_rank, reference, split_heads
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
from qkv.interpret.operation import (
    DividedByRoot,
    Given,
    Joined,
    Masked,
    Mixed,
    Operation,
    Product,
    Shown,
    Similarity,
    Softmax,
    Step,
    Walk,
)
from qkv.interpret.worksheet import AnswerMatrix, Worksheet

# FOLDED explain/rounding: Do the printed figures reproduce each other? A reader with a
#   calculator should not be misled.
#
#   A step is computed from all digits, but a reader only has the shown ones. Wherever the
#   shown
#   figures would lead to another last digit, the cell is marked and both numbers are told.
# FOLDED explain/answers: Somebody's results held against the right ones, cell by cell.


def walk(sheet: Worksheet) -> Walk:
    """X, weights, Q, K, V, scores, scaled, mask, weights, output: each as a labelled matrix.

    Every step is computed twice, by the attention kernel and by hand, and must agree.
    """
    walked = _Walker(sheet).walk()
    for step in walked:
        _check_finite(step)
        if not step.is_input:
            by_hand = step.operation.compute(*walked.inputs(step))
            np.testing.assert_allclose(step.value, by_hand, rtol=1e-9, atol=1e-12)
    return walked


class _Walker:
    """Builds the steps in order; the words of queries and keys label the rows and columns."""

    def __init__(self, sheet: Worksheet) -> None:
        self.sheet = sheet
        self.queries, self.keys = unique_labels(sheet.tokens), unique_labels(sheet.keys)
        self.steps: dict[str, Step] = {}

    def walk(self) -> Walk:
        self._given()
        q, k, v = (self._projected(letter) for letter in "qkv")
        attention = self._attention(q, k, v)
        for head in range(self.sheet.heads):
            self._head(head, attention, q.shape[1], v.shape[1])
        self._join(attention)
        title = self.sheet.title or f'Attention for "{" ".join(self.queries)}"'
        return Walk(title, tuple(self.steps.values()))

    def _given(self) -> None:
        """What the reader wrote down: the words' numbers, then the weights."""
        for name, rows, letter in (
            ("x", self.queries, "x"),
            ("source_x", self.keys, "x"),
            ("w_q", "x", "q"),
            ("w_k", "x", "k"),
            ("w_v", "x", "v"),
            ("v_down", "x", "r"),
            ("v_up", "r", "v"),
        ):
            if name in self.sheet.matrices:
                value = self.sheet.matrices[name]
                words = column_labels(rows, len(value)) if isinstance(rows, str) else rows
                self._add(name, words, column_labels(letter, value.shape[1]), value, Given())

    def _projected(self, letter: str) -> Matrix:
        """Q, K or V: given, or the input times its weights."""
        m, cross = self.sheet.matrices, self.sheet.source is not None
        words = self.queries if letter == "q" else self.keys
        if letter in m:
            self._add(letter, words, column_labels(letter, m[letter].shape[1]), m[letter], Given())
            return m[letter]
        inputs = "source_x" if cross and letter != "q" else "x"
        if letter == "v" and "v_down" in m:
            return self._factored(inputs)
        weight = f"w_{letter}"
        value = _numpy(_tensor(m[inputs]) @ _tensor(m[weight]))
        self._add(
            letter, words, column_labels(letter, value.shape[1]), value, Product((inputs, weight))
        )
        return value

    def _factored(self, inputs: str) -> Matrix:
        """V = X · V_down · V_up, by way of the narrow space between."""
        m = self.sheet.matrices
        down, up = m["v_down"], m["v_up"]
        narrow, out = column_labels("r", down.shape[1]), column_labels("v", up.shape[1])
        middle = _numpy(_tensor(m[inputs]) @ _tensor(down))
        self._add("v_narrow", self.keys, narrow, middle, Product((inputs, "v_down")))
        x, d, u = (_tensor(t) for t in (m[inputs], down, up))
        value = _numpy(project_low_rank(x[None], d, u)[0])
        self._add("v", self.keys, out, value, Product(("v_narrow", "v_up")))
        return value

    def _attention(self, q: Matrix, k: Matrix, v: Matrix) -> AttentionSteps:
        heads = self.sheet.heads
        mask = Mask.causal() if self.sheet.causal else Mask.full()
        scale = None if self.sheet.scaled else 1.0
        heads_q, heads_k, heads_v = (split_heads(_tensor(t)[None], heads) for t in (q, k, v))
        return reference(heads_q, heads_k, heads_v, mask, scale)

    def _head(self, head: int, kernel: AttentionSteps, d_k: int, d_v: int) -> None:
        """One head's scores, weights and output; with a single head the names need no number."""
        sheet, prefix = self.sheet, f"head{head + 1}." if self.sheet.heads > 1 else ""
        d_k, d_v = d_k // sheet.heads, d_v // sheet.heads
        keys, values = (range(head * d, (head + 1) * d) for d in (d_k, d_v))

        def grid(name: str, value: Tensor, made_by: Operation) -> str:
            self._add(prefix + name, self.queries, self.keys, _numpy(value[0, head]), made_by)
            return prefix + name

        last = grid("scores", kernel.scores, Similarity(("q", "k"), keys))
        if sheet.scaled:
            last = grid("scaled", kernel.scaled, DividedByRoot((last,), d_k))
        if sheet.causal:
            self._mask(kernel)
            last = grid("masked", kernel.masked, Masked((last, "mask")))
        weights = grid("weights", kernel.weights, Softmax((last,)))
        named = column_labels("o", d_v * sheet.heads)[values.start : values.stop]
        output = _numpy(kernel.output[0, head])
        self._add(prefix + "output", self.queries, named, output, Mixed((weights, "v"), values))

    def _mask(self, kernel: AttentionSteps) -> None:
        if "mask" not in self.steps:
            hidden = torch.where(kernel.masked[0, 0] == -torch.inf, -torch.inf, 0.0)
            self._add("mask", self.queries, self.keys, _numpy(hidden), Given())

    def _join(self, kernel: AttentionSteps) -> None:
        m, heads = self.sheet.matrices, self.sheet.heads
        joined = np.concatenate([_numpy(head) for head in kernel.output[0]], axis=1)
        if heads > 1:
            parts = tuple(f"head{head + 1}.output" for head in range(heads))
            names = column_labels("o", joined.shape[1])
            self._add("output", self.queries, names, joined, Joined(parts))
        if "w_o" in m:
            inner, out = m["w_o"].shape
            self._add("w_o", column_labels("o", inner), column_labels("y", out), m["w_o"], Given())
            projected = _numpy(_tensor(joined) @ _tensor(m["w_o"]))
            made_by = Product(("output", "w_o"))
            self._add("projected", self.queries, column_labels("y", out), projected, made_by)

    def _add(
        self,
        name: str,
        rows: tuple[str, ...],
        names: tuple[str, ...],
        value: Matrix,
        made_by: Operation,
    ) -> None:
        step = wording.word(name, rows, names, value, made_by, self.sheet)
        self.steps[name] = step


def _check_finite(step: Step) -> None:
    hidden = np.isneginf(step.value) if step.name.endswith(("mask", "masked")) else False
    if not (np.isfinite(step.value) | hidden).all():
        raise WorksheetError(f"{step.name} is too large to compute; use smaller numbers")


def _tensor(matrix: Matrix) -> Tensor:
    return torch.from_numpy(matrix)


def _numpy(tensor: Tensor) -> Matrix:
    matrix: Matrix = tensor.numpy()
    return matrix


@dataclass(frozen=True)
class Drift:
    """A cell whose last shown digit does not follow from the figures shown above it."""

    row: int
    column: int
    by_hand: float  # from the shown figures


def shown_decimals(step: Step, precision: int) -> int:
    """A given matrix is shown as it was written, if that is short enough."""
    return exact_decimals(step.value, precision) if step.is_input else precision


def shown(
    step: Step,
    precision: int,
    rows: Sequence[int] | None = None,
    columns: Sequence[int] | None = None,
) -> Matrix:
    """The figures of the step as a reader sees them; of some rows and columns if not all."""
    value = step.value if rows is None else step.value[list(rows)]
    value = value if columns is None else value[:, list(columns)]
    return round_matrix(value, shown_decimals(step, precision))


def shown_inputs(walk: Walk, step: Step, precision: int) -> list[Shown]:
    steps = (walk[name] for name in step.operation.inputs)
    return [Shown(shown(made, precision), shown_decimals(made, precision)) for made in steps]


def drifts(walk: Walk, step: Step, precision: int) -> list[Drift]:
    """Every cell of the step that a calculator gets differently from the figures shown."""
    if step.is_input:
        return []
    inputs = shown_inputs(walk, step, precision)
    by_hand = round_matrix(step.operation.compute(*(i.value for i in inputs)), precision)
    differs = by_hand != shown(step, precision)
    return [Drift(int(i), int(j), float(by_hand[i, j])) for i, j in np.argwhere(differs)]


def uneven_rows(step: Step, precision: int) -> list[tuple[int, float]]:
    """Rows of weights whose shown figures do not add up to 1 exactly, with their sum."""
    if not step.name.endswith("weights"):
        return []
    sums = round_matrix(shown(step, precision).sum(axis=1, keepdims=True), precision)[:, 0]
    sees = (step.value != 0.0).any(axis=1).tolist()
    return [(i, float(total)) for i, total in enumerate(sums) if sees[i] and total != 1.0]


FEWEST_DECIMALS = 2  # an answer is never held to less


@dataclass(frozen=True)
class Mistake:
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
    def cell_name(self) -> str:
        return self.step.cell_name(self.row, self.column)


def check_answers(walk: Walk, answers: Mapping[str, AnswerMatrix]) -> list[Mistake]:
    """Every wrong cell, in the order of the steps. A cell that cannot be read is not judged."""
    names = {step.name for step in walk}
    for name, answer in answers.items():
        if name not in names:
            raise WorksheetError(unknown("step in answers", name, (step.name for step in walk)))
        if answer.value.shape != walk[name].value.shape:
            raise WorksheetError(
                f"answers.{name} is {format_shape(answer.value)} "
                f"but {name} is {format_shape(walk[name].value)}"
            )
    return [slip for step in walk if step.name in answers for slip in _slips(step, answers)]


def _slips(step: Step, answers: Mapping[str, AnswerMatrix]) -> list[Mistake]:
    answer = answers[step.name]
    count = max(answer.decimals, FEWEST_DECIMALS)
    half_a_digit = 0.5 * 10.0**-count * (1 + 1e-9)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(answer.value - step.value) <= half_a_digit)
    wrong &= answer.value != step.value  # −∞ is −∞
    wrong &= ~np.isnan(answer.value)
    return [
        Mistake(step, int(i), int(j), float(answer.value[i, j]), count)
        for i, j in np.argwhere(wrong)
    ]
