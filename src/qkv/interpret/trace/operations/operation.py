"""What an operation is: one step of a model, written down, recomputed and worked out by hand.

An operation gives the same mathematics in four forms: an equation for people, LaTeX for print, a
definition in NumPy and float64 that shares no code with the model (`compute`), and the arithmetic
of a single cell (`arithmetic`). Traces, walks through a worksheet or a head, and the page all use
these; what an operation is applied to is stored with the node or step, not in it.

A module from outside the package can bring its own: subclass `Operation` as a frozen dataclass.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qkv.errors import UsageError
from qkv.interpret.matrix import format_number, format_term, round_matrix

Array = NDArray[Any]

KINDS: dict[str, type["Operation"]] = {}  # every operation by its name in files

MAX_TERMS = 16  # a longer sum is abridged …
LARGEST_TERMS = 6  # … to this many of its largest terms


@dataclass(frozen=True)
class DisplayMatrix:
    """Numbers as a reader sees them: rounded, and printed with this many decimals."""

    value: Array
    decimals: int

    @property
    def transposed(self) -> "DisplayMatrix":
        return DisplayMatrix(self.value.T, self.decimals)

    def row(self, index: int) -> "DisplayMatrix":
        return DisplayMatrix(self.value[index], self.decimals)

    def column(self, index: int) -> "DisplayMatrix":
        return DisplayMatrix(self.value[:, index], self.decimals)

    def columns(self, start: int, stop: int) -> "DisplayMatrix":
        return DisplayMatrix(self.value[:, start:stop], self.decimals)

    def number(self, row: int, column: int) -> str:
        """The cell as it is printed."""
        return format_number(self.value[row, column], self.decimals)

    def term(self, row: int, column: int) -> str:
        """The cell inside a sum or a product."""
        return format_term(self.value[row, column], self.decimals)


class Arithmetic(NamedTuple):
    """One cell worked out: the text, and what its last figures give."""

    text: str
    result: float


@dataclass(frozen=True)
class Operation:
    """One step as a value: it can be compared, written to JSON and computed without torch."""

    recomputable: ClassVar[bool] = True  # whether `compute` gives the value from its inputs

    def __init_subclass__(cls) -> None:
        # By name, and replacing an earlier one: a notebook runs the same cell many times.
        KINDS[cls.__name__] = cls

    @property
    def equation(self) -> str:
        """One line, in Unicode."""
        raise NotImplementedError

    @property
    def latex(self) -> str:
        """The same in LaTeX's math mode."""
        raise NotImplementedError

    def compute(self, *inputs: Array) -> Array:
        """The value from the inputs, in their order."""
        raise NotImplementedError

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        """One cell of a two-dimensional value from the printed numbers of its inputs.

        Intermediate results are rounded to `precision` decimals, as a reader would write them
        down. An operation that has nothing better shows its equation and the result.
        """
        # Correct for any operation, though it does not show where the number comes from.
        value = self.compute(*(matrix.value for matrix in inputs))
        return Arithmetic(self.equation, float(value[row, column]))

    def json(self) -> dict[str, Any]:
        """Its kind and fields; `read_operation` is the inverse."""
        return {"kind": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class ConstantFormula(Operation):
    """An operation whose equation does not depend on its fields."""

    as_text: ClassVar[str]
    as_latex: ClassVar[str]

    @property
    def equation(self) -> str:
        return self.as_text

    @property
    def latex(self) -> str:
        return self.as_latex


@dataclass(frozen=True)
class InputValue(Operation):
    """Not computed: ids, positions, weights, or whatever else comes from outside."""

    what: str = "given"
    recomputable: ClassVar[bool] = False

    @property
    def equation(self) -> str:
        return self.what

    @property
    def latex(self) -> str:
        return rf"\text{{{self.what}}}"


@dataclass(frozen=True)
class Opaque(Operation):
    """Computed by a module that brings no operation of its own: shown, but not opened."""

    module: str = ""  # the name of its class
    recomputable: ClassVar[bool] = False

    @property
    def equation(self) -> str:
        return f"computed by {self.module}, not opened"

    @property
    def latex(self) -> str:
        return rf"\mathrm{{{self.module}}}(\cdot)"

    def compute(self, *inputs: Array) -> Array:
        raise UsageError(
            f"a {self.module} brings no operation and cannot be recomputed; "
            "give the module one to open it"
        )


def as_float64(*arrays: Array) -> tuple[Array, ...]:
    """The arrays in float64, where the order of a sum does not show."""
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)


def format_factor(value: float) -> str:
    """A factor with six significant digits and a typographic minus sign."""
    return f"{value:.6g}".replace("-", "−")


def dot_product(left: DisplayMatrix, right: DisplayMatrix, precision: int) -> Arithmetic:
    """a₁ × b₁ + a₂ × b₂ + … = p₁ + p₂ + … for two vectors, each product rounded as it is printed.

    A long sum shows its largest terms and what the others add up to.
    """
    products = round_matrix((left.value * right.value)[None], precision)[0]
    if len(products) == 1:
        text = f"{_term(left, 0)} × {_term(right, 0)}"
        return Arithmetic(text, float(left.value[0] * right.value[0]))
    abridged = len(products) > MAX_TERMS
    terms = list(range(len(products)))
    if abridged:
        largest_first = np.argsort(-np.abs(products), kind="stable")
        terms = sorted(largest_first[:LARGEST_TERMS].tolist())
    factors = " + ".join(f"{_term(left, i)} × {_term(right, i)}" for i in terms)
    summands = " + ".join(format_term(products[i], precision) for i in terms)
    if abridged:
        rest = products.sum() - products[terms].sum()
        factors += f" + {len(products) - LARGEST_TERMS} smaller terms"
        summands += f" + {format_term(rest, precision)}"
    return Arithmetic(f"{factors} = {summands}", float(products.sum()))


def _term(vector: DisplayMatrix, index: int) -> str:
    return format_term(vector.value[index], vector.decimals)
