"""What one step of a model does to its inputs: in words, and once more in plain NumPy."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

# FOLDED explain/trace/operation/pointwise: What is done to each number, or to each position by
#   itself.
# FOLDED explain/trace/operation/pooling: One vector for a text.
# FOLDED explain/trace/operation/tables: From ids and positions to vectors.

Array = NDArray[Any]

KINDS: dict[str, type["Operation"]] = {}  # every operation by the name it has in files


@dataclass(frozen=True)
class Operation:
    """A value, so that it can be written down; `compute` is the definition, without torch."""

    recomputable: ClassVar[bool] = True  # whether `compute` gives the value from its inputs

    @property
    def equation(self) -> str:
        """On one line, as people write it."""
        raise NotImplementedError

    @property
    def latex(self) -> str:
        raise NotImplementedError

    def compute(self, *inputs: Array) -> Array:
        """The result from the inputs, in their order."""
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        KINDS[cls.__name__] = cls

    def json(self) -> dict[str, Any]:
        return {"kind": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class ConstantFormula(Operation):
    """One that is always written the same way."""

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
    """Not computed: it comes from outside, as `what` says."""

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


def wide(*arrays: Array) -> tuple[Array, ...]:
    """In float64, so that the order of a sum does not show."""
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)


def number(value: float) -> str:
    """A factor as people write it: enough digits, no more."""
    return f"{value:.6g}".replace("-", "−")


BENDS = {
    "relu": ("max(0, x)", r"\max(0, X)"),
    "relu2": ("max(0, x)²", r"\max(0, X)^2"),
    "gelu": ("x·Φ(x)", r"X\,\Phi(X)"),
    "gelu_tanh": ("x·Φ(x), by its tanh formula", r"X\,\Phi(X)"),
    "silu": ("x·σ(x)", r"X\,\sigma(X)"),
    "tanh": ("tanh(x)", r"\tanh(X)"),
}


@dataclass(frozen=True)
class ElementwiseAdd(ConstantFormula):
    """(x, y): what came in, and what the part adds to it."""

    as_text = "x + y"
    as_latex = r"X + Y"

    def compute(self, *inputs: Array) -> Array:
        x, y = wide(*inputs)
        return np.asarray(x + y)


@dataclass(frozen=True)
class ElementwiseMultiply(ConstantFormula):
    """(gate, up): number by number."""

    as_text = "gate × up"
    as_latex = r"G \odot U"

    def compute(self, *inputs: Array) -> Array:
        x, y = wide(*inputs)
        return np.asarray(x * y)


@dataclass(frozen=True)
class ScaleBy(Operation):
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
class Activation(Operation):
    """(x): through an activation."""

    function: str = "relu"

    @property
    def equation(self) -> str:
        return BENDS[self.function][0]

    @property
    def latex(self) -> str:
        return BENDS[self.function][1]

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        if self.function in ("relu", "relu2"):
            return np.maximum(x, 0.0) ** (2 if self.function == "relu2" else 1)
        if self.function == "gelu":
            from scipy.special import erf  # type: ignore[import-untyped]

            return np.asarray(x * 0.5 * (1.0 + erf(x / np.sqrt(2.0))))
        if self.function == "gelu_tanh":
            inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)
            return np.asarray(0.5 * x * (1.0 + np.tanh(inner)))
        if self.function == "silu":
            return np.asarray(x / (1.0 + np.exp(-x)))
        return np.tanh(x)


@dataclass(frozen=True)
class LayerNormalization(Operation):
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
class RMSNormalization(Operation):
    """(x, gain)."""

    eps: float = 1e-6
    unit_offset: bool = False

    @property
    def equation(self) -> str:
        return "x ÷ root mean square × " + ("(1 + gain)" if self.unit_offset else "gain")

    @property
    def latex(self) -> str:
        gain = r"(1+\gamma)" if self.unit_offset else r"\gamma"
        return rf"\frac{{X}}{{\sqrt{{\overline{{X^2}}+\epsilon}}}}\,{gain}"

    def compute(self, *inputs: Array) -> Array:
        x, gain = wide(*inputs)
        size = np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.eps)
        return np.asarray(x / size * (1.0 + gain if self.unit_offset else gain))


WAYS = {
    "mean": ("mean over the positions", r"\frac{1}{T}\sum_t x_t"),
    "first": ("the first position", r"x_1"),
    "last": ("the last position", r"x_T"),
    "max": ("the largest value of each feature", r"\max_t x_t"),
}


@dataclass(frozen=True)
class Pool(Operation):
    """(states): (B, T, D) -> (B, D)."""

    pooling: str = "mean"

    @property
    def equation(self) -> str:
        return WAYS[self.pooling][0]

    @property
    def latex(self) -> str:
        return WAYS[self.pooling][1]

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        if self.pooling in ("first", "last"):
            return x[:, 0 if self.pooling == "first" else -1]
        return np.asarray(x.mean(axis=1) if self.pooling == "mean" else x.max(axis=1))


@dataclass(frozen=True)
class L2Normalize(ConstantFormula):
    """(x): brought to length 1."""

    as_text = "x ÷ |x|"
    as_latex = r"\frac{x}{\lVert x \rVert}"

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


@dataclass(frozen=True)
class EmbeddingLookup(ConstantFormula):
    """(ids, table): the row of each id."""

    as_text = "table[ids]"
    as_latex = r"W_E[\text{ids}]"

    def compute(self, *inputs: Array) -> Array:
        ids, table = inputs
        return wide(table)[0][ids]


@dataclass(frozen=True)
class AddTokenType(ConstantFormula):
    """(x, types): plus the vector of the first type, which every token is of if nothing is said."""

    as_text = "x + types[0]"
    as_latex = r"X + T_0"

    def compute(self, *inputs: Array) -> Array:
        x, types = wide(*inputs)
        return np.asarray(x + types[0])


@dataclass(frozen=True)
class AddLearnedPositions(Operation):
    """(x, positions, table): plus the learned vector of each position."""

    offset: int = 0

    @property
    def equation(self) -> str:
        return f"x + table[position{f' + {self.offset}' if self.offset else ''}]"

    @property
    def latex(self) -> str:
        return r"X + P"

    def compute(self, *inputs: Array) -> Array:
        x, positions, table = inputs
        return np.asarray(x + wide(table)[0][positions + self.offset])


@dataclass(frozen=True)
class AddSinusoids(Operation):
    """(x, positions): plus sines and cosines of growing wavelengths."""

    base: float = 10_000.0
    interleaved: bool = True
    endpoint: bool = False
    offset: int = 0

    @property
    def equation(self) -> str:
        return "x + sin, cos(position ÷ wavelength)"

    @property
    def latex(self) -> str:
        return r"X + \mathrm{PE}"

    def compute(self, *inputs: Array) -> Array:
        x, positions = inputs
        width = x.shape[-1]
        count = (width + 1) // 2
        steps = max(count - 1, 1) if self.endpoint else width / 2
        speeds = self.base ** -(np.arange(count) / steps)
        angles = (positions + self.offset)[:, None] * speeds
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (T, count, 2)
        order = waves if self.interleaved else waves.swapaxes(-1, -2)
        return np.asarray(x + order.reshape(len(positions), -1)[:, :width])


@dataclass(frozen=True)
class RopeAngles(Operation):
    """(positions): the cosine or sine of how far each pair of features turns at each position."""

    function: str = "cos"
    frequencies: tuple[float, ...] = ()  # radians per position of each pair
    adjacent: bool = False
    factor: float = 1.0

    @property
    def equation(self) -> str:
        return f"{self.function}(position × speed)"

    @property
    def latex(self) -> str:
        return rf"\{self.function}(p\,\theta)"

    def compute(self, *inputs: Array) -> Array:
        angles = inputs[0][:, None] * np.array(self.frequencies)  # (T, R/2)
        both = np.repeat(angles, 2, -1) if self.adjacent else np.concatenate([angles, angles], -1)
        return np.asarray((np.cos if self.function == "cos" else np.sin)(both) * self.factor)
