"""What is done to each number, or to each position by itself: sums, activations, norms, pooling."""

import re
from dataclasses import dataclass

import numpy as np

from qkv.interpret.matrix import format_number, format_term
from qkv.interpret.trace.operations.operation import (
    Arithmetic,
    Array,
    ConstantFormula,
    DisplayMatrix,
    Operation,
    as_float64,
    format_factor,
)

# name: equation, LaTeX
ACTIVATIONS = {
    "relu": ("max(0, x)", r"\max(0, X)"),
    "relu2": ("max(0, x)²", r"\max(0, X)^2"),
    "gelu": ("x·Φ(x)", r"X\,\Phi(X)"),
    "gelu_tanh": ("x·Φ(x), by its tanh formula", r"X\,\Phi(X)"),
    "silu": ("x·σ(x)", r"X\,\sigma(X)"),
    "tanh": ("tanh(x)", r"\tanh(X)"),
}

POOLINGS = {
    "mean": ("mean over the positions", r"\frac{1}{T}\sum_t x_t"),
    "first": ("the first position", r"x_1"),
    "last": ("the last position", r"x_T"),
    "max": ("the largest value of each feature", r"\max_t x_t"),
}


@dataclass(frozen=True)
class ElementwiseAdd(ConstantFormula):
    """(x, y): a residual connection, or scores and their bias."""

    as_text = "x + y"
    as_latex = r"X + Y"

    def compute(self, *inputs: Array) -> Array:
        x, y = as_float64(*inputs)
        return np.asarray(x + y)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        x, y = inputs
        text = f"{x.number(row, column)} + {y.term(row, column)}"
        return Arithmetic(text, x.value[row, column] + y.value[row, column])


@dataclass(frozen=True)
class ElementwiseMultiply(ConstantFormula):
    """(gate, up): the gate of a gated feed-forward layer."""

    as_text = "gate × up"
    as_latex = r"G \odot U"

    def compute(self, *inputs: Array) -> Array:
        x, y = as_float64(*inputs)
        return np.asarray(x * y)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        gate, up = inputs
        text = f"{gate.number(row, column)} × {up.term(row, column)}"
        return Arithmetic(text, gate.value[row, column] * up.value[row, column])


@dataclass(frozen=True)
class ScaleBy(Operation):
    """(x): times a constant."""

    factor: float = 1.0

    @property
    def equation(self) -> str:
        return f"x × {format_factor(self.factor)}"

    @property
    def latex(self) -> str:
        return rf"{self.factor:.6g}\,X"

    def compute(self, *inputs: Array) -> Array:
        return np.asarray(as_float64(*inputs)[0] * self.factor)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        text = f"{inputs[0].number(row, column)} × {format_number(self.factor, 6)}"
        return Arithmetic(text, inputs[0].value[row, column] * self.factor)


@dataclass(frozen=True)
class Activation(Operation):
    """(x): through a nonlinear function."""

    function: str = "relu"

    @property
    def equation(self) -> str:
        return ACTIVATIONS[self.function][0]

    @property
    def latex(self) -> str:
        return ACTIVATIONS[self.function][1]

    def compute(self, *inputs: Array) -> Array:
        (x,) = as_float64(*inputs)
        match self.function:
            case "relu":
                return np.maximum(x, 0.0)
            case "relu2":
                return np.maximum(x, 0.0) ** 2
            case "gelu":
                from scipy.special import erf  # type: ignore[import-untyped]

                return np.asarray(x * 0.5 * (1.0 + erf(x / np.sqrt(2.0))))
            case "gelu_tanh":
                # Hendrycks & Gimpel 2016, "Gaussian Error Linear Units", section 2
                inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
                return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))
            case "silu":
                return np.asarray(x / (1.0 + np.exp(-x)))
            case _:
                return np.tanh(x)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        # Only the letter on its own: max(0, x) has another x in its name.
        text = re.sub(r"\bx\b", inputs[0].term(row, column), self.equation)
        return Arithmetic(text, float(self.compute(inputs[0].value[row, column])))


@dataclass(frozen=True)
class LayerNormalization(Operation):
    """(x, gain) or (x, gain, shift): mean 0 and variance 1 in each row, then gain and shift."""

    eps: float = 1e-5
    shift: bool = True

    @property
    def equation(self) -> str:
        return "(x − mean) ÷ deviation × gain" + " + shift" * self.shift

    @property
    def latex(self) -> str:
        return r"\frac{X-\mu}{\sqrt{\sigma^2+\epsilon}}\,\gamma" + (r" + \beta" * self.shift)

    def compute(self, *inputs: Array) -> Array:
        x, gain, *shift = as_float64(*inputs)
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.eps)
        result = centred / deviation * gain
        if self.shift:
            result = result + shift[0]
        return np.asarray(result)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        x, gain, *shift = inputs
        mean = float(x.value[row].mean())
        deviation = float(np.sqrt(((x.value[row] - mean) ** 2).mean() + self.eps))
        factor = gain.value[0, column]
        text = (
            f"({x.term(row, column)} − {format_term(mean, precision)}) ÷ "
            f"{format_number(deviation, precision)} × {format_term(factor, gain.decimals)}"
        )
        result = (x.value[row, column] - mean) / deviation * factor
        if self.shift:
            text += f" + {shift[0].term(0, column)}"
            result += shift[0].value[0, column]
        return Arithmetic(text, float(result))


@dataclass(frozen=True)
class RMSNormalization(Operation):
    """(x, gain): each row divided by its root mean square, then times the gain.

    unit_offset: the factor is 1 + gain, as in Gemma.
    """

    eps: float = 1e-6
    unit_offset: bool = False

    @property
    def equation(self) -> str:
        if self.unit_offset:
            return "x ÷ root mean square × (1 + gain)"
        return "x ÷ root mean square × gain"

    @property
    def latex(self) -> str:
        gain = r"(1+\gamma)" if self.unit_offset else r"\gamma"
        return rf"\frac{{X}}{{\sqrt{{\overline{{X^2}}+\epsilon}}}}\,{gain}"

    def compute(self, *inputs: Array) -> Array:
        x, gain = as_float64(*inputs)
        if self.unit_offset:
            gain = 1.0 + gain
        return np.asarray(x / self._root_mean_square(x) * gain)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        x, gain = inputs
        size = float(self._root_mean_square(x.value[row])[0])
        factor = gain.value[0, column] + self.unit_offset
        text = (
            f"{x.term(row, column)} ÷ {format_number(size, precision)} × "
            f"{format_term(factor, gain.decimals)}"
        )
        return Arithmetic(text, float(x.value[row, column] / size * factor))

    def _root_mean_square(self, x: Array) -> Array:
        return np.asarray(np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.eps))


@dataclass(frozen=True)
class Pool(Operation):
    """(states): one vector for a text, (B, T, D) -> (B, D)."""

    pooling: str = "mean"

    @property
    def equation(self) -> str:
        return POOLINGS[self.pooling][0]

    @property
    def latex(self) -> str:
        return POOLINGS[self.pooling][1]

    def compute(self, *inputs: Array) -> Array:
        (x,) = as_float64(*inputs)
        match self.pooling:
            case "first":
                return x[:, 0]
            case "last":
                return x[:, -1]
            case "mean":
                return np.asarray(x.mean(axis=1))
            case _:
                return np.asarray(x.max(axis=1))


@dataclass(frozen=True)
class L2Normalize(ConstantFormula):
    """(x): scaled to length 1."""

    as_text = "x ÷ |x|"
    as_latex = r"\frac{x}{\lVert x \rVert}"

    def compute(self, *inputs: Array) -> Array:
        (x,) = as_float64(*inputs)
        norm = np.linalg.norm(x, axis=-1, keepdims=True)
        return np.asarray(x / np.maximum(norm, 1e-12))  # a vector of zeros stays one

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        (x,) = inputs
        norm = max(float(np.linalg.norm(x.value[row])), 1e-12)
        text = f"{x.number(row, column)} ÷ {format_number(norm, precision)}"
        return Arithmetic(text, float(x.value[row, column] / norm))
