"""One vector for a text."""

from dataclasses import dataclass

import numpy as np

from qkv.explain.trace.operation.base import Array, Fixed, Operation, wide

WAYS = {
    "mean": ("mean over the positions", r"\frac{1}{T}\sum_t x_t"),
    "first": ("the first position", r"x_1"),
    "last": ("the last position", r"x_T"),
    "max": ("the largest value of each feature", r"\max_t x_t"),
}


@dataclass(frozen=True)
class Pooled(Operation):
    """(states): (B, T, D) -> (B, D)."""

    how: str = "mean"

    @property
    def equation(self) -> str:
        return WAYS[self.how][0]

    @property
    def latex(self) -> str:
        return WAYS[self.how][1]

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        if self.how in ("first", "last"):
            return x[:, 0 if self.how == "first" else -1]
        return np.asarray(x.mean(axis=1) if self.how == "mean" else x.max(axis=1))


@dataclass(frozen=True)
class Unit(Fixed):
    """(x): brought to length 1."""

    as_text = "x ÷ |x|"
    as_latex = r"\frac{x}{\lVert x \rVert}"

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))
