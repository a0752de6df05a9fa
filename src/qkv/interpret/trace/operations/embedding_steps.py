"""From ids and positions to vectors: embeddings, positions added to them, and RoPE's angles."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.trace.operations.operation import (
    Array,
    ConstantFormula,
    Operation,
    as_float64,
)


@dataclass(frozen=True)
class EmbeddingLookup(ConstantFormula):
    """(ids, table): the row of each id."""

    as_text = "table[ids]"
    as_latex = r"W_E[\text{ids}]"

    def compute(self, *inputs: Array) -> Array:
        ids, table = inputs
        return as_float64(table)[0][ids]


@dataclass(frozen=True)
class AddTokenType(ConstantFormula):
    """(x, types): plus the vector of type 0, which every token has unless types are passed in."""

    as_text = "x + types[0]"
    as_latex = r"X + T_0"

    def compute(self, *inputs: Array) -> Array:
        x, types = as_float64(*inputs)
        return np.asarray(x + types[0])


@dataclass(frozen=True)
class AddLearnedPositions(Operation):
    """(x, positions, table): plus the learned vector of each position."""

    offset: int = 0

    @property
    def equation(self) -> str:
        if self.offset == 0:
            return "x + table[position]"
        return f"x + table[position + {self.offset}]"

    @property
    def latex(self) -> str:
        return r"X + P"

    def compute(self, *inputs: Array) -> Array:
        x, positions, table = inputs
        return np.asarray(x + as_float64(table)[0][positions + self.offset])


@dataclass(frozen=True)
class AddSinusoids(Operation):
    """(x, positions): plus sines and cosines of growing wavelengths (Vaswani et al. 2017).

    interleaved: sine and cosine of a wavelength are neighbours, else all sines come first.
    endpoint: the last wavelength is exactly the base, as in Marian.
    """

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
        steps = width / 2
        if self.endpoint:
            steps = max(count - 1, 1)
        frequencies = self.base ** -(np.arange(count) / steps)
        angles = (positions + self.offset)[:, None] * frequencies
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (T, count, 2)
        if not self.interleaved:
            waves = waves.swapaxes(-1, -2)
        return np.asarray(x + waves.reshape(len(positions), -1)[:, :width])


@dataclass(frozen=True)
class RopeAngles(Operation):
    """(positions): cosine or sine of the angle that RoPE rotates each pair of features by."""

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
        if self.adjacent:
            angles = np.repeat(angles, 2, axis=-1)
        else:
            angles = np.concatenate([angles, angles], axis=-1)
        wave = np.cos if self.function == "cos" else np.sin
        return np.asarray(wave(angles) * self.factor)
