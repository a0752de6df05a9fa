"""From ids and positions to vectors."""

from dataclasses import dataclass

import numpy as np

from qkv.explain.trace.operation.base import Array, Fixed, Operation, wide


@dataclass(frozen=True)
class LookUp(Fixed):
    """(ids, table): the row of each id."""

    as_text = "table[ids]"
    as_latex = r"W_E[\text{ids}]"

    def compute(self, *inputs: Array) -> Array:
        ids, table = inputs
        return wide(table)[0][ids]


@dataclass(frozen=True)
class AddType(Fixed):
    """(x, types): plus the vector of the first type, which every token is of if nothing is said."""

    as_text = "x + types[0]"
    as_latex = r"X + T_0"

    def compute(self, *inputs: Array) -> Array:
        x, types = wide(*inputs)
        return np.asarray(x + types[0])


@dataclass(frozen=True)
class AddRows(Operation):
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
class AddWaves(Operation):
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
class Angles(Operation):
    """(positions): the cosine or sine of how far each pair of features turns at each position."""

    function: str = "cos"
    speeds: tuple[float, ...] = ()  # radians per position of each pair
    adjacent: bool = False
    factor: float = 1.0

    @property
    def equation(self) -> str:
        return f"{self.function}(position × speed)"

    @property
    def latex(self) -> str:
        return rf"\{self.function}(p\,\theta)"

    def compute(self, *inputs: Array) -> Array:
        angles = inputs[0][:, None] * np.array(self.speeds)  # (T, R/2)
        both = np.repeat(angles, 2, -1) if self.adjacent else np.concatenate([angles, angles], -1)
        return np.asarray((np.cos if self.function == "cos" else np.sin)(both) * self.factor)
