"""The steps of scaled dot-product attention, from rotated queries and keys to joined heads.

Each works on a whole layer, (B, H, T, E), and on the matrices of a single head, (T, E): a
worksheet and a walk through one head use the second form. Attention itself is from Vaswani et al.
2017, "Attention Is All You Need".
"""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.matrix import format_number, format_term, round_half_away, round_matrix
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
from qkv.interpret.trace.operations.pointwise import ScaleBy


@dataclass(frozen=True)
class Rotate(Operation):
    """(x, cos, sin): RoPE, each pair of features rotated by the angle of its position.

    A pair is two neighbouring features if `adjacent`, else features i and i + width / 2. Features
    beyond the width of cos and sin stay as they are (partial rotation).
    """

    adjacent: bool = False

    @property
    def equation(self) -> str:
        return "each pair (a, b) to (a·cos − b·sin, b·cos + a·sin)"

    @property
    def latex(self) -> str:
        return r"R_{\theta} X"

    def compute(self, *inputs: Array) -> Array:
        x, cos, sin = as_float64(*inputs)
        width = cos.shape[-1]
        first = slice(0, width // 2)
        second = slice(width // 2, width)
        if self.adjacent:
            first = slice(0, width, 2)
            second = slice(1, width, 2)
        a = x[..., first]
        b = x[..., second]
        result = x.copy()  # features beyond the width stay
        result[..., first] = a * cos[..., first] - b * sin[..., first]
        result[..., second] = b * cos[..., second] + a * sin[..., second]
        return result

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        x, cos, sin = inputs
        feature = x.value[row, column]
        width = cos.value.shape[1]
        if column >= width:
            return Arithmetic(f"{x.number(row, column)}, which is not turned", feature)
        partner, sign = self._partner(column, width)
        operator = "+" if sign > 0 else "−"
        text = (
            f"{x.term(row, column)} × {cos.term(row, column)} {operator} "
            f"{x.term(row, partner)} × {sin.term(row, column)}"
        )
        along = feature * cos.value[row, column]
        across = sign * x.value[row, partner] * sin.value[row, column]
        return Arithmetic(text, along + across)

    def _partner(self, column: int, width: int) -> tuple[int, int]:
        """The other feature of the pair, and the sign of its sine term."""
        if self.adjacent:
            is_first = column % 2 == 0
            distance = 1
        else:
            is_first = column < width // 2
            distance = width // 2
        if is_first:
            return column + distance, -1
        return column - distance, 1


@dataclass(frozen=True)
class Scores(ConstantFormula):
    """(q, k): the dot product of every query with every key.

    With grouped-query attention each key head serves a group of query heads.
    """

    as_text = "q · kᵀ"
    as_latex = r"Q K^{\top}"

    def compute(self, *inputs: Array) -> Array:
        q, k = as_float64(*inputs)
        return np.asarray(q @ repeat_kv(k, q).swapaxes(-1, -2))

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        q, k = inputs
        return dot_product(q.row(row), k.row(column), precision)


@dataclass(frozen=True)
class HeadScores(Scores):
    """(q, k): the same for the columns `start` to `stop` of q and k, which belong to one head."""

    start: int = 0
    stop: int = 0

    def compute(self, *inputs: Array) -> Array:
        q, k = inputs
        return super().compute(q[:, self.start : self.stop], k[:, self.start : self.stop])

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        slices = (matrix.columns(self.start, self.stop) for matrix in inputs)
        return super().arithmetic(row, column, precision, *slices)


@dataclass(frozen=True)
class ScaleScores(ScaleBy):
    """(scores): times 1 ÷ √d_k, or the factor a model uses instead."""

    d_k: int = 1

    @property
    def divides_by_root(self) -> bool:
        """Whether the factor is the usual 1 ÷ √d_k."""
        return bool(np.isclose(self.factor, self.d_k**-0.5, rtol=1e-9))

    @property
    def equation(self) -> str:
        if self.divides_by_root:
            return f"scores ÷ √{self.d_k}"
        return f"scores × {format_factor(self.factor)}"

    @property
    def latex(self) -> str:
        if self.divides_by_root:
            return rf"\frac{{Q K^{{\top}}}}{{\sqrt{{{self.d_k}}}}}"
        return rf"{self.factor:.6g}\,Q K^{{\top}}"

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        if not self.divides_by_root:
            return super().arithmetic(row, column, precision, *inputs)
        score = inputs[0].number(row, column)
        root = round_half_away(float(np.sqrt(self.d_k)), precision)
        text = f"{score} ÷ √{self.d_k} = {score} ÷ {format_number(root, precision)}"
        return Arithmetic(text, inputs[0].value[row, column] / root)


@dataclass(frozen=True)
class SoftCap(Operation):
    """(scores): kept below the cap in size by cap · tanh(x ÷ cap), as in Gemma 2."""

    cap: float = 1.0

    @property
    def equation(self) -> str:
        return f"{format_factor(self.cap)}·tanh(scaled ÷ {format_factor(self.cap)})"

    @property
    def latex(self) -> str:
        return rf"{self.cap:g}\tanh(\cdot/{self.cap:g})"

    def compute(self, *inputs: Array) -> Array:
        return np.tanh(as_float64(*inputs)[0] / self.cap) * self.cap

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        score = inputs[0].value[row, column]
        text = f"{self.cap:g} × tanh({inputs[0].number(row, column)} ÷ {self.cap:g})"
        return Arithmetic(text, float(np.tanh(score / self.cap) * self.cap))


@dataclass(frozen=True)
class MaskScores(Operation):
    """(scores), then a bias and a mask, if there are such.

    The mask is boolean, True where a query may attend, or additive, 0 or −∞.
    """

    bias: bool = False
    mask: bool = False

    @property
    def equation(self) -> str:
        scores = "scores" + " + bias" * self.bias
        if self.mask:
            return f"{scores}, −∞ where not seen"
        return f"{scores}, nothing hidden"

    @property
    def latex(self) -> str:
        return r"\cdot" + r" + b" * self.bias + r" + M" * self.mask

    def compute(self, *inputs: Array) -> Array:
        scores, *rest = inputs
        if self.bias:
            scores = scores + rest.pop(0)
        if not self.mask:
            return np.asarray(scores)
        mask = rest[0]
        if mask.dtype == np.bool_:
            return np.where(mask, scores, -np.inf)
        return np.asarray(scores + mask)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        scores, *rest = inputs
        text = scores.number(row, column)
        result = scores.value[row, column]
        if self.bias:
            bias = rest.pop(0)
            text += f" + {bias.term(row, column)}"
            result = result + bias.value[row, column]
        if self.mask:
            hidden = rest[0].value[row, column]
            if rest[0].value.dtype == np.bool_:
                hidden = 0.0 if hidden else -np.inf
            text += f" + {format_term(hidden, 0)}"
            result = result + hidden
        return Arithmetic(text, result)


@dataclass(frozen=True)
class Softmax(ConstantFormula):
    """(scores): weights that sum to 1 in each row; zeros in a row of nothing but −∞."""

    as_text = "softmax of each row"
    as_latex = r"\mathrm{softmax}(\cdot)"

    def compute(self, *inputs: Array) -> Array:
        (x,) = as_float64(*inputs)
        largest = x.max(axis=-1, keepdims=True)
        # Subtracting the maximum changes no weight and keeps exp from overflowing.
        powers = np.exp(x - np.where(np.isneginf(largest), 0.0, largest))
        total = powers.sum(axis=-1, keepdims=True)
        return np.asarray(powers / np.where(total == 0.0, 1.0, total))

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        scores = inputs[0].value[row]
        decimals = inputs[0].decimals
        largest = scores.max()
        if np.isneginf(largest):
            return Arithmetic("nothing is seen", 0.0)
        # Exponents of moderate size are readable as they are; others have the maximum subtracted.
        shift = 0.0 if -5 < largest < 20 else largest
        exponents = [_exponential(score, shift, decimals) for score in scores]
        powers = round_matrix(np.exp(scores - shift)[None], precision)[0]
        denominator = " + ".join(format_number(power, precision) for power in powers)
        text = (
            f"{exponents[column]} ÷ ({' + '.join(exponents)}) = "
            f"{format_number(powers[column], precision)} ÷ ({denominator})"
        )
        return Arithmetic(text, powers[column] / powers.sum())


@dataclass(frozen=True)
class WeightedSum(ConstantFormula):
    """(weights, v): the mean of the values, weighted by attention."""

    as_text = "weights · v"
    as_latex = r"A V"

    def compute(self, *inputs: Array) -> Array:
        weights, v = as_float64(*inputs)
        return np.asarray(weights @ repeat_kv(v, weights))

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        weights, v = inputs
        return dot_product(weights.row(row), v.column(column), precision)


@dataclass(frozen=True)
class HeadWeightedSum(WeightedSum):
    """(weights, v): the same for the columns `start` to `stop` of v, which belong to one head."""

    start: int = 0
    stop: int = 0

    def compute(self, *inputs: Array) -> Array:
        weights, v = inputs
        return super().compute(weights, v[:, self.start : self.stop])

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        weights, v = inputs
        values = v.columns(self.start, self.stop)
        return super().arithmetic(row, column, precision, weights, values)


@dataclass(frozen=True)
class ConcatHeads(ConstantFormula):
    """(output): the heads next to each other, (B, H, T, E) -> (B, T, H·E).

    A worksheet has a matrix for each head instead: (T, E), (T, E), … -> (T, H·E).
    """

    as_text = "head after head, side by side"
    as_latex = r"[\mathrm{head}_1; \ldots; \mathrm{head}_H]"

    def compute(self, *inputs: Array) -> Array:
        if len(inputs) > 1:
            return np.concatenate(as_float64(*inputs), axis=-1)
        (x,) = as_float64(*inputs)
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def arithmetic(
        self, row: int, column: int, precision: int, *inputs: DisplayMatrix
    ) -> Arithmetic:
        for number, head in enumerate(inputs, start=1):
            width = head.value.shape[1]
            if column < width:
                # The worksheet's steps are called head1.output, head2.output, …
                text = f"column {column + 1} of head{number}.output"
                return Arithmetic(text, head.value[row, column])
            column -= width
        raise IndexError(column)


def repeat_kv(shared: Array, per_head: Array) -> Array:
    """Keys or values for every query head: (B, K, S, E) -> (B, H, S, E); those of one head stay."""
    if shared.ndim < 4:  # the matrix of a single head
        return shared
    return np.repeat(shared, per_head.shape[1] // shared.shape[1], axis=1)


def _exponential(score: float, shift: float, decimals: int) -> str:
    """e^0.61, or e^(40.00 − 39.00) where the maximum of the row is subtracted."""
    exponent = format_number(score, decimals)
    if not shift:
        return f"e^{exponent}"
    return f"e^({exponent} − {format_term(shift, decimals)})"
