"""Matrix products: linear layers, projections into heads, and logits over the vocabulary."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.matrix import format_term
from qkv.interpret.trace.operations.operation import (
    Arithmetic,
    Array,
    ConstantFormula,
    DisplayMatrix,
    Operation,
    as_float64,
    dot_product,
    format_factor,
)


@dataclass(frozen=True)
class MatMul(Operation):
    """(a, b) or (a, b, bias): a · b, row by column, the bias added to every row."""

    bias: bool = False

    @property
    def equation(self) -> str:
        return "a · b" + " + bias" * self.bias

    @property
    def latex(self) -> str:
        return r"A B" + r" + b" * self.bias

    def compute(self, *inputs: Array) -> Array:
        a, b, *bias = as_float64(*inputs)
        product = a @ b
        if self.bias:
            product = product + bias[0]
        return np.asarray(product)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        a, b, *bias = inputs
        text, result = dot_product(a.row(row), b.column(column), precision)
        if not self.bias:
            return Arithmetic(text, result)
        value = bias[0].value.reshape(-1)[column]
        return Arithmetic(f"({text}) + {format_term(value, bias[0].decimals)}", result + value)


@dataclass(frozen=True)
class Linear(MatMul):
    """(x, weight) or (x, weight, bias): a layer, whose weight is stored as (outputs, inputs)."""

    bias: bool = True

    @property
    def equation(self) -> str:
        return "x · Wᵀ" + " + b" * self.bias

    @property
    def latex(self) -> str:
        return r"X W^{\top}" + r" + b" * self.bias

    def compute(self, *inputs: Array) -> Array:
        x, weight, *bias = inputs
        return super().compute(x, weight.T, *bias)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        x, weight, *bias = inputs
        return super().arithmetic(row, column, precision, x, weight.transposed, *bias)


@dataclass(frozen=True)
class LinearToHeads(Linear):
    """A linear layer whose outputs are split into heads: (B, T, D) -> (B, H, T, E).

    In its arithmetic the column counts across all heads.
    """

    heads: int = 1

    @property
    def equation(self) -> str:
        return f"{super().equation}, in {self.heads} heads"

    def compute(self, *inputs: Array) -> Array:
        return split_heads(super().compute(*inputs), self.heads)


@dataclass(frozen=True)
class BlockDiagonalToHeads(ConstantFormula):
    """(x, weight): each head's slice of x times that head's own square matrix."""

    as_text = "xₕ · Wₕ for the slice of each head"
    as_latex = r"X_h W_h"

    def compute(self, *inputs: Array) -> Array:
        x, weight = as_float64(*inputs)
        return np.asarray(split_heads(x, len(weight)) @ weight)


@dataclass(frozen=True)
class LowRankToHeads(Operation):
    """(x, down, up): a low-rank projection, x · down · up, split into heads."""

    heads: int = 1

    @property
    def equation(self) -> str:
        return f"x · V_down · V_up, in {self.heads} heads"

    @property
    def latex(self) -> str:
        return r"X V_{\downarrow} V_{\uparrow}"

    def compute(self, *inputs: Array) -> Array:
        x, down, up = as_float64(*inputs)
        return split_heads(x @ down @ up, self.heads)


@dataclass(frozen=True)
class TokenLogits(Linear):
    """(states, table) or (states, table, bias): a logit for each token, perhaps soft-capped."""

    cap: float | None = None

    @property
    def equation(self) -> str:
        plain = "states · tableᵀ" + " + b" * self.bias
        if self.cap is None:
            return plain
        return f"{format_factor(self.cap)}·tanh(({plain}) ÷ {self.cap:g})"

    def compute(self, *inputs: Array) -> Array:
        logits = super().compute(*inputs)
        if self.cap is None:
            return logits
        return np.tanh(logits / self.cap) * self.cap

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        text, result = super().arithmetic(row, column, precision, *inputs)
        if self.cap is None:
            return Arithmetic(text, result)
        capped = float(np.tanh(result / self.cap) * self.cap)
        return Arithmetic(f"{self.cap:g} × tanh(({text}) ÷ {self.cap:g})", capped)


def split_heads(x: Array, heads: int) -> Array:
    """(B, T, H·E) -> (B, H, T, E)"""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
