"""What a trained head does beyond the worked example: biases, norms, turning, distances, caps."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.matrix import Matrix, format_number, format_term
from qkv.interpret.operation import Operation, Product, Shown, Worked


@dataclass(frozen=True)
class ProductPlus(Product):
    """A · B + b, the bias the same for every row."""

    def compute(self, *given: Matrix) -> Matrix:
        left, right, bias = given
        return np.asarray(left @ right + bias)

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        text, result = super().arithmetic(row, column, precision, *given[:2])
        bias = given[2].value[0, column]
        return Worked(f"({text}) + {format_term(bias, given[2].decimals)}", result + bias)


@dataclass(frozen=True)
class Turned(Operation):
    """(x, cos, sin): pairs of features turned by the angle of their position."""

    adjacent: bool = False

    def compute(self, *given: Matrix) -> Matrix:
        x, cos, sin = given
        turned = x.copy()
        for column in range(cos.shape[1]):
            other, sign = self._partner(column, cos.shape[1])
            turned[:, column] = x[:, column] * cos[:, column] + sign * x[:, other] * sin[:, column]
        return turned

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        x, cos, sin = given
        own = x.value[row, column]
        if column >= cos.value.shape[1]:
            return Worked(f"{format_number(own, x.decimals)}, which is not turned", own)
        other, sign = self._partner(column, cos.value.shape[1])
        beside, c, s = x.value[row, other], cos.value[row, column], sin.value[row, column]
        text = (
            f"{format_term(own, x.decimals)} × {format_term(c, cos.decimals)} "
            f"{'+' if sign > 0 else '−'} "
            f"{format_term(beside, x.decimals)} × {format_term(s, sin.decimals)}"
        )
        return Worked(text, own * c + sign * beside * s)

    def _partner(self, column: int, width: int) -> tuple[int, int]:
        """The other feature of a pair, and the sign it comes with."""
        if self.adjacent:
            return (column + 1, -1) if column % 2 == 0 else (column - 1, 1)
        half = width // 2
        return (column + half, -1) if column < half else (column - half, 1)


@dataclass(frozen=True)
class Normed(Operation):
    """(x, gain) or (x, gain, shift): each row brought to a common size."""

    eps: float = 1e-5
    centred: bool = True
    around_one: bool = False

    def compute(self, *given: Matrix) -> Matrix:
        x, gain, *shift = given
        x = x - x.mean(axis=1, keepdims=True) if self.centred else x
        size = np.sqrt((x**2).mean(axis=1, keepdims=True) + self.eps)
        return np.asarray(x / size * (gain + self.around_one) + (shift[0] if shift else 0.0))

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        x, gain, *shift = given
        mean = float(x.value[row].mean()) if self.centred else 0.0
        size = float(np.sqrt(((x.value[row] - mean) ** 2).mean() + self.eps))
        factor = gain.value[0, column] + self.around_one
        text = f"{format_term(x.value[row, column], x.decimals)}"
        text = f"({text} − {format_term(mean, precision)})" if self.centred else text
        text += f" ÷ {format_number(size, precision)} × {format_term(factor, gain.decimals)}"
        result = (x.value[row, column] - mean) / size * factor
        if shift:
            text += f" + {format_term(shift[0].value[0, column], shift[0].decimals)}"
            result += shift[0].value[0, column]
        return Worked(text, float(result))


@dataclass(frozen=True)
class Multiplied(Operation):
    """× one number."""

    factor: float = 1.0

    def compute(self, *given: Matrix) -> Matrix:
        return given[0] * self.factor

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        score = given[0].value[row, column]
        factor = format_number(self.factor, 6)
        return Worked(f"{format_number(score, given[0].decimals)} × {factor}", score * self.factor)


@dataclass(frozen=True)
class Capped(Operation):
    """cap · tanh(x ÷ cap)."""

    cap: float = 1.0

    def compute(self, *given: Matrix) -> Matrix:
        return np.tanh(given[0] / self.cap) * self.cap

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        score = given[0].value[row, column]
        text = f"{self.cap:g} × tanh({format_number(score, given[0].decimals)} ÷ {self.cap:g})"
        return Worked(text, float(np.tanh(score / self.cap) * self.cap))


@dataclass(frozen=True)
class Added(Operation):
    """Scores + what the distance adds."""

    def compute(self, *given: Matrix) -> Matrix:
        return given[0] + given[1]

    def arithmetic(self, row: int, column: int, precision: int, *given: Shown) -> Worked:
        score, bias = (shown.value[row, column] for shown in given)
        text = f"{format_number(score, given[0].decimals)} + {format_term(bias, given[1].decimals)}"
        return Worked(text, score + bias)
