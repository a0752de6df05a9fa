"""What is done to each number, or to each position by itself."""

from dataclasses import dataclass

import numpy as np

from qkv.explain.trace.operation.base import Array, Fixed, Operation, number, wide

BENDS = {
    "relu": ("max(0, x)", r"\max(0, X)"),
    "relu2": ("max(0, x)²", r"\max(0, X)^2"),
    "gelu": ("x·Φ(x)", r"X\,\Phi(X)"),
    "gelu_tanh": ("x·Φ(x), by its tanh formula", r"X\,\Phi(X)"),
    "silu": ("x·σ(x)", r"X\,\sigma(X)"),
    "tanh": ("tanh(x)", r"\tanh(X)"),
}


@dataclass(frozen=True)
class Plus(Fixed):
    """(x, y): what came in, and what the part adds to it."""

    as_text = "x + y"
    as_latex = r"X + Y"

    def compute(self, *inputs: Array) -> Array:
        x, y = wide(*inputs)
        return np.asarray(x + y)


@dataclass(frozen=True)
class Product(Fixed):
    """(gate, up): number by number."""

    as_text = "gate × up"
    as_latex = r"G \odot U"

    def compute(self, *inputs: Array) -> Array:
        x, y = wide(*inputs)
        return np.asarray(x * y)


@dataclass(frozen=True)
class Times(Operation):
    """(x): times one number."""

    factor: float = 1.0

    @property
    def equation(self) -> str:
        return f"x × {number(self.factor)}"

    @property
    def latex(self) -> str:
        return rf"{self.factor:.6g}\,X"

    def compute(self, *inputs: Array) -> Array:
        return np.asarray(wide(*inputs)[0] * self.factor)


@dataclass(frozen=True)
class Bent(Operation):
    """(x): through an activation."""

    by: str = "relu"

    @property
    def equation(self) -> str:
        return BENDS[self.by][0]

    @property
    def latex(self) -> str:
        return BENDS[self.by][1]

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        if self.by in ("relu", "relu2"):
            return np.maximum(x, 0.0) ** (2 if self.by == "relu2" else 1)
        if self.by == "gelu":
            from scipy.special import erf  # type: ignore[import-untyped]

            return np.asarray(x * 0.5 * (1.0 + erf(x / np.sqrt(2.0))))
        if self.by == "gelu_tanh":
            inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
            return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))
        if self.by == "silu":
            return np.asarray(x / (1.0 + np.exp(-x)))
        return np.tanh(x)


@dataclass(frozen=True)
class LayerNormed(Operation):
    """(x, gain) or (x, gain, shift)."""

    eps: float = 1e-5
    shift: bool = True

    @property
    def equation(self) -> str:
        return "(x − mean) ÷ deviation × gain" + (" + shift" if self.shift else "")

    @property
    def latex(self) -> str:
        return r"\frac{X-\mu}{\sqrt{\sigma^2+\epsilon}}\,\gamma" + (r" + \beta" * self.shift)

    def compute(self, *inputs: Array) -> Array:
        x, gain, *shift = wide(*inputs)
        centred = x - x.mean(axis=-1, keepdims=True)
        size = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.eps)
        return np.asarray(centred / size * gain + (shift[0] if self.shift else 0.0))


@dataclass(frozen=True)
class RootMeanNormed(Operation):
    """(x, gain)."""

    eps: float = 1e-6
    around_one: bool = False

    @property
    def equation(self) -> str:
        return "x ÷ root mean square × " + ("(1 + gain)" if self.around_one else "gain")

    @property
    def latex(self) -> str:
        gain = r"(1+\gamma)" if self.around_one else r"\gamma"
        return rf"\frac{{X}}{{\sqrt{{\overline{{X^2}}+\epsilon}}}}\,{gain}"

    def compute(self, *inputs: Array) -> Array:
        x, gain = wide(*inputs)
        size = np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.eps)
        return np.asarray(x / size * (1.0 + gain if self.around_one else gain))
