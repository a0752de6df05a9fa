"""How a step is made from the steps above it: the whole matrix, and one cell in full arithmetic.

The numbers of a walk come from the attention kernel. An operation says the same thing a second
time, the way a person would do it by hand; the walk holds one against the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qkv.errors import UsageError, unknown
from qkv.interpret.matrix import Matrix, format_number, format_term, round_half_away, round_matrix

# FOLDED explain/matrix: The small matrices people work by hand: float64, with a name for every
#   row and column.
# FOLDED explain/step: A walk through one attention: named steps in order, each with the
#   operation that made it.

MOST_TERMS, FEW_TERMS = 16, 6  # a sum of more than so many is told by its so many largest terms


@dataclass(frozen=True)
class Shown:
    """A matrix as a reader sees it: rounded, with so many decimals."""

    value: Matrix
    decimals: int


class Worked(NamedTuple):
    """The arithmetic of one cell, and what a reader gets from the last figures in it."""

    text: str
    result: float


@dataclass(frozen=True)
class Operation:
    """What is done to the steps named in `inputs`, taken in that order."""

    inputs: tuple[str, ...] = ()

    def compute(self, *given: Matrix) -> Matrix:
        """The step's matrix by hand."""
        raise NotImplementedError

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        """One cell from its terms as they are shown, with so many decimals in between."""
        raise NotImplementedError


@dataclass(frozen=True)
class Given(Operation):
    """Written down, not computed: it has no inputs and no arithmetic."""


@dataclass(frozen=True)
class Product(Operation):
    """A · B, row by column."""

    def compute(self, *given: Matrix) -> Matrix:
        left, right = given
        return left @ right

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        left, right = given
        return _terms(_row(left, row), _column(right, column), precision)


@dataclass(frozen=True)
class Similarity(Operation):
    """Q · Kᵀ over the columns of one head: every query with every key."""

    head: range = range(0)

    def compute(self, *given: Matrix) -> Matrix:
        q, k = (matrix[:, list(self.head)] for matrix in given)
        scores: Matrix = q @ k.T
        return scores

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        q, k = (Shown(g.value[:, list(self.head)], g.decimals) for g in given)
        return _terms(_row(q, row), _row(k, column), precision)


@dataclass(frozen=True)
class DividedByRoot(Operation):
    """÷ √d_k."""

    d_k: int = 1

    def compute(self, *given: Matrix) -> Matrix:
        return given[0] / float(np.sqrt(self.d_k))

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        score, root = (
            given[0].value[row, column],
            round_half_away(float(np.sqrt(self.d_k)), precision),
        )
        above = format_number(score, given[0].decimals)
        text = f"{above} ÷ √{self.d_k} = {above} ÷ {format_number(root, precision)}"
        return Worked(text, score / root)


@dataclass(frozen=True)
class Masked(Operation):
    """Scores + M, where M is 0 or −∞."""

    def compute(self, *given: Matrix) -> Matrix:
        return given[0] + given[1]

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        score, hidden = (g.value[row, column] for g in given)
        text = f"{format_number(score, given[0].decimals)} + {format_term(hidden, 0)}"
        return Worked(text, score + hidden)


@dataclass(frozen=True)
class Softmax(Operation):
    """Each row as shares of its exponentials; zeros for a row that is −∞ throughout."""

    def compute(self, *given: Matrix) -> Matrix:
        largest = given[0].max(axis=1, keepdims=True)
        powers = np.exp(given[0] - np.where(np.isneginf(largest), 0.0, largest))
        total = powers.sum(axis=1, keepdims=True)
        shares: Matrix = powers / np.where(total == 0.0, 1.0, total)
        return shares

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        scores, digits = given[0].value[row], given[0].decimals
        largest = scores.max()
        if np.isneginf(largest):
            return Worked("nothing is seen", 0.0)
        less = 0.0 if -5 < largest < 20 else largest  # the shares stay, the powers stay readable
        minus = f" − {format_term(less, digits)}" if less else ""
        exponents = [_power(format_number(score, digits) + minus) for score in scores]
        powers = round_matrix(np.exp(scores - less)[None], precision)[0]
        below = " + ".join(format_number(power, precision) for power in powers)
        text = (
            f"{exponents[column]} ÷ ({' + '.join(exponents)}) = "
            f"{format_number(powers[column], precision)} ÷ ({below})"
        )
        return Worked(text, powers[column] / powers.sum())


@dataclass(frozen=True)
class Mixed(Operation):
    """Weights · V over the columns of one head."""

    head: range = range(0)

    def compute(self, *given: Matrix) -> Matrix:
        weights, v = given
        mixed: Matrix = weights @ v[:, list(self.head)]
        return mixed

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        weights, v = given
        return _terms(_row(weights, row), _column(v, self.head[column]), precision)


@dataclass(frozen=True)
class Joined(Operation):
    """The heads' outputs side by side."""

    def compute(self, *given: Matrix) -> Matrix:
        return np.concatenate(given, axis=1)

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        for name, part in zip(self.inputs, given, strict=True):
            if column < part.value.shape[1]:
                cell = part.value[row, column]
                text = f"column {column + 1} of {name}, {format_number(cell, part.decimals)}"
                return Worked(text, cell)
            column -= part.value.shape[1]
        raise IndexError(column)


def _row(shown: Shown, row: int) -> Shown:
    return Shown(shown.value[row], shown.decimals)


def _column(shown: Shown, column: int) -> Shown:
    return Shown(shown.value[:, column], shown.decimals)


def _terms(left: Shown, right: Shown, precision: int) -> Worked:
    """a₁ × b₁ + a₂ × b₂ + … = p₁ + p₂ + …, each product rounded as it is shown.

    Of many terms those that count most, and what the others add up to.
    """
    products = round_matrix((left.value * right.value)[None], precision)[0]
    many = len(products) > MOST_TERMS
    told = np.sort(np.argsort(-np.abs(products), kind="stable")[:FEW_TERMS]) if many else ...
    pairs = [
        f"{format_term(a, left.decimals)} × {format_term(b, right.decimals)}"
        for a, b in zip(left.value[told], right.value[told], strict=True)
    ]
    if len(pairs) == 1:
        return Worked(pairs[0], float(left.value[0] * right.value[0]))
    added = " + ".join(format_term(product, precision) for product in products[told])
    if not many:
        return Worked(f"{' + '.join(pairs)} = {added}", float(products.sum()))
    rest = products.sum() - products[told].sum()
    others = f"{len(products) - FEW_TERMS} smaller terms"
    text = f"{' + '.join(pairs)} + {others} = {added} + {format_term(rest, precision)}"
    return Worked(text, float(products.sum()))


def _power(exponent: str) -> str:
    return f"e^({exponent})" if " " in exponent else f"e^{exponent}"


class UserWord(str):
    """A word of the reader's text inside a sentence of ours; renderers set it apart."""


Sentence = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """One matrix of the walk."""

    name: str
    title: str
    equation: str
    latex: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: Matrix
    operation: Operation
    sentence: Sentence = ()
    axes: tuple[str, str] = ("", "")  # what the rows and columns stand for

    @property
    def is_input(self) -> bool:
        return not self.operation.inputs

    def cell_name(self, row: int, column: int) -> str:
        """A cell by name, as in scores(poem, write)."""
        return f"{self.name}({self.rows[row]}, {self.columns[column]})"


@dataclass(frozen=True)
class Walk:
    """All steps, in the order they are computed."""

    title: str
    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise UsageError(unknown("step", name, (step.name for step in self.steps)))

    def inputs(self, step: Step) -> list[Matrix]:
        return [self[name].value for name in step.operation.inputs]

    def select(self, names: Sequence[str]) -> list[Step]:
        """The steps of those names, in the order of the walk; all of them if none is named."""
        asked = [self[name] for name in names]
        return [step for step in self.steps if not names or step in asked]

    def cells(
        self, row: str, column: str, names: Sequence[str] = ()
    ) -> list[tuple[Step, int, int]]:
        """Every asked step that has a cell of that row and column, by label or by number.

        Two numbers mean a query and a key, unless a step is named.
        """
        numbers = row.isdecimal() and column.isdecimal() and not names
        found = [
            (step, i, j)
            for step in self.select(names)
            if (step.axes == ("query", "key") or not numbers)
            and (i := _index(step.rows, row)) is not None
            and (j := _index(step.columns, column)) is not None
        ]
        if not found:
            rows = dict.fromkeys(label for step in self.steps for label in step.rows)
            columns = dict.fromkeys(label for step in self.steps for label in step.columns)
            raise UsageError(
                f"no step has a cell {row},{column}; rows: {', '.join(rows)}; "
                f"columns: {', '.join(columns)}"
            )
        return found


def _index(labels: tuple[str, ...], asked: str) -> int | None:
    """The place of a label, in any case, or a place counted from 1."""
    if asked in labels:
        return labels.index(asked)
    folded = [label.casefold() for label in labels]
    if asked.casefold() in folded:
        return folded.index(asked.casefold())
    if asked.isdecimal() and 1 <= int(asked) <= len(labels):
        return int(asked) - 1
    return None
