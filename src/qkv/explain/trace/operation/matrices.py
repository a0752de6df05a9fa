"""Matrix products, and how heads are split and joined."""

from dataclasses import dataclass

import numpy as np

from qkv.explain.trace.operation.base import Array, Fixed, Operation, number, wide


@dataclass(frozen=True)
class Linear(Operation):
    """(x, weight) or (x, weight, bias)."""

    bias: bool = True

    @property
    def equation(self) -> str:
        return "x · Wᵀ + b" if self.bias else "x · Wᵀ"

    @property
    def latex(self) -> str:
        return r"X W^{\top} + b" if self.bias else r"X W^{\top}"

    def compute(self, *inputs: Array) -> Array:
        x, weight, *bias = wide(*inputs)
        return np.asarray(x @ weight.T + (bias[0] if self.bias else 0.0))


@dataclass(frozen=True)
class ToHeads(Linear):
    """The same, shared out among the heads: (B, T, D) -> (B, H, T, E)."""

    heads: int = 1

    @property
    def equation(self) -> str:
        return f"{super().equation}, in {self.heads} heads"

    def compute(self, *inputs: Array) -> Array:
        return split(super().compute(*inputs), self.heads)


@dataclass(frozen=True)
class SlicesToHeads(Fixed):
    """(x, weight): each head's slice of x times that head's own square matrix."""

    as_text = "xₕ · Wₕ for the slice of each head"
    as_latex = r"X_h W_h"

    def compute(self, *inputs: Array) -> Array:
        x, weight = wide(*inputs)
        return np.asarray(split(x, len(weight)) @ weight)


@dataclass(frozen=True)
class FactoredToHeads(Operation):
    """(x, down, up): through a narrow space, shared out among the heads."""

    heads: int = 1

    @property
    def equation(self) -> str:
        return f"x · V_down · V_up, in {self.heads} heads"

    @property
    def latex(self) -> str:
        return r"X V_{\downarrow} V_{\uparrow}"

    def compute(self, *inputs: Array) -> Array:
        x, down, up = wide(*inputs)
        return split(x @ down @ up, self.heads)


@dataclass(frozen=True)
class Join(Fixed):
    """(mixed): the heads side by side, (B, H, T, E) -> (B, T, H·E)."""

    as_text = "head after head, side by side"
    as_latex = r"[\mathrm{head}_1; \ldots; \mathrm{head}_H]"

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@dataclass(frozen=True)
class TokenScores(Linear):
    """(states, table) or (states, table, bias): how well each token of the vocabulary fits."""

    cap: float | None = None

    @property
    def equation(self) -> str:
        plain = "states · tableᵀ + b" if self.bias else "states · tableᵀ"
        return plain if self.cap is None else f"{number(self.cap)}·tanh(({plain}) ÷ {self.cap:g})"

    def compute(self, *inputs: Array) -> Array:
        plain = super().compute(*inputs)
        return plain if self.cap is None else np.tanh(plain / self.cap) * self.cap


def split(x: Array, heads: int) -> Array:
    """(B, T, H·E) -> (B, H, T, E)"""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
