"""The steps of one attention, from turned queries to mixed values."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.trace.operations.pointwise import Array, ConstantFormula, Operation, number, wide

# FOLDED explain/trace/operation/matrices: Matrix products, and how heads are split and joined.


@dataclass(frozen=True)
class Rotate(Operation):
    """(x, cos, sin): each pair of features turned by the angle of its position."""

    adjacent: bool = False

    @property
    def equation(self) -> str:
        return "each pair (a, b) to (a·cos − b·sin, b·cos + a·sin)"

    @property
    def latex(self) -> str:
        return r"R_{\theta} X"

    def compute(self, *inputs: Array) -> Array:
        x, cos, sin = wide(*inputs)
        width, half = cos.shape[-1], cos.shape[-1] // 2
        first = slice(0, width, 2) if self.adjacent else slice(0, half)
        second = slice(1, width, 2) if self.adjacent else slice(half, width)
        turned = x.copy()  # features beyond the width stay as they are
        a, b = x[..., first], x[..., second]
        turned[..., first] = a * cos[..., first] - b * sin[..., first]
        turned[..., second] = b * cos[..., second] + a * sin[..., second]
        return turned


@dataclass(frozen=True)
class Scores(ConstantFormula):
    """(q, k): every query with every key; where heads share keys, each group takes its own."""

    as_text = "q · kᵀ"
    as_latex = r"Q K^{\top}"

    def compute(self, *inputs: Array) -> Array:
        q, k = wide(*inputs)
        return np.asarray(q @ spread(k, q.shape[1]).swapaxes(-1, -2))


@dataclass(frozen=True)
class ScaleScores(Operation):
    """(scores): × 1/√d_k, or whatever the model takes instead."""

    factor: float = 1.0
    d_k: int = 1

    @property
    def _usual(self) -> bool:
        return bool(np.isclose(self.factor, self.d_k**-0.5, rtol=1e-9))

    @property
    def equation(self) -> str:
        return f"scores ÷ √{self.d_k}" if self._usual else f"scores × {number(self.factor)}"

    @property
    def latex(self) -> str:
        if self._usual:
            return rf"\frac{{Q K^{{\top}}}}{{\sqrt{{{self.d_k}}}}}"
        return rf"{self.factor:.6g}\,Q K^{{\top}}"

    def compute(self, *inputs: Array) -> Array:
        return np.asarray(wide(*inputs)[0] * self.factor)


@dataclass(frozen=True)
class SoftCap(Operation):
    """(scaled): none larger than the cap, along a tanh."""

    cap: float = 1.0

    @property
    def equation(self) -> str:
        return f"{number(self.cap)}·tanh(scaled ÷ {number(self.cap)})"

    @property
    def latex(self) -> str:
        return rf"{self.cap:g}\tanh(\cdot/{self.cap:g})"

    def compute(self, *inputs: Array) -> Array:
        return np.tanh(wide(*inputs)[0] / self.cap) * self.cap


@dataclass(frozen=True)
class AttentionMask(Operation):
    """(query positions, key positions): True where the query may look."""

    causal: bool = False
    before: int | None = None
    after: int | None = None

    @property
    def equation(self) -> str:
        far = "" if self.before is None else f" and at most {self.before} before"
        far += "" if self.after is None or self.causal else f", {self.after} after"
        return ("key ≤ query" if self.causal else "key near query") + far

    @property
    def latex(self) -> str:
        return r"j \le i" if self.causal else r"|i-j| \le w"

    def compute(self, *inputs: Array) -> Array:
        distance = inputs[1][None, :] - inputs[0][:, None]  # (T, S)
        seen = distance <= 0 if self.causal else np.ones_like(distance, dtype=bool)
        if self.before is not None:
            seen &= distance >= -self.before
        if self.after is not None:
            seen &= distance <= self.after
        return np.asarray(seen)


@dataclass(frozen=True)
class AlibiBias(Operation):
    """(query positions, key positions): what each head loses for a distance (ALiBi)."""

    slopes: tuple[float, ...] = ()

    @property
    def equation(self) -> str:
        return "−slope × distance"

    @property
    def latex(self) -> str:
        return r"-m_h |i-j|"

    def compute(self, *inputs: Array) -> Array:
        distance = np.abs(inputs[1][None, :] - inputs[0][:, None])
        return np.asarray(-np.array(self.slopes)[None, :, None, None] * distance)


@dataclass(frozen=True)
class RelativeBias(Operation):
    """(query positions, key positions, table): a learned number a range of distances (T5)."""

    max_distance: int = 128
    bidirectional: bool = True

    @property
    def equation(self) -> str:
        return "table[bucket of the distance]"

    @property
    def latex(self) -> str:
        return r"b_{h, \mathrm{bucket}(j-i)}"

    def compute(self, *inputs: Array) -> Array:
        queries, keys, table = inputs
        bucket = self._bucket(keys[None, :] - queries[:, None], len(table))
        return wide(table)[0][bucket].transpose(2, 0, 1)[None]

    def _bucket(self, distance: Array, buckets: int) -> Array:
        first = np.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            first = (distance > 0) * buckets
            distance = np.abs(distance)
        else:
            distance = np.maximum(-distance, 0)
        exact = buckets // 2
        far = np.log(np.maximum(distance, 1).astype(np.float32) / exact)
        far = exact + (far / np.log(self.max_distance / exact) * (buckets - exact)).astype(int)
        return np.asarray(
            first + np.where(distance < exact, distance, np.minimum(far, buckets - 1))
        )


@dataclass(frozen=True)
class MaskScores(Operation):
    """(scores), then a bias and what is seen, if there are such: −∞ where not seen."""

    bias: bool = False
    mask: bool = False

    @property
    def equation(self) -> str:
        plain = "scores + bias" if self.bias else "scores"
        return plain + (", −∞ where not seen" if self.mask else ", nothing hidden")

    @property
    def latex(self) -> str:
        return r"\cdot" + r" + b" * self.bias + r" + M" * self.mask

    def compute(self, *inputs: Array) -> Array:
        scores, *rest = inputs
        if self.bias:
            scores = scores + rest.pop(0)
        return np.where(rest[0], scores, -np.inf) if self.mask else np.asarray(scores)


@dataclass(frozen=True)
class Softmax(ConstantFormula):
    """(masked): each row as shares that sum to 1; zeros for a row of nothing but −∞."""

    as_text = "softmax of each row"
    as_latex = r"\mathrm{softmax}(\cdot)"

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        largest = x.max(axis=-1, keepdims=True)
        powers = np.exp(x - np.where(np.isneginf(largest), 0.0, largest))
        total = powers.sum(axis=-1, keepdims=True)
        return np.asarray(powers / np.where(total == 0.0, 1.0, total))


@dataclass(frozen=True)
class WeightedSum(ConstantFormula):
    """(weights, v): the mean of the values, weighted."""

    as_text = "weights · v"
    as_latex = r"A V"

    def compute(self, *inputs: Array) -> Array:
        weights, v = wide(*inputs)
        return np.asarray(weights @ spread(v, weights.shape[1]))


def spread(shared: Array, heads: int) -> Array:
    """Keys or values for every query head: (B, K, S, E) -> (B, H, S, E)."""
    return np.repeat(shared, heads // shared.shape[1], axis=1)


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
class LinearToHeads(Linear):
    """The same, shared out among the heads: (B, T, D) -> (B, H, T, E)."""

    heads: int = 1

    @property
    def equation(self) -> str:
        return f"{super().equation}, in {self.heads} heads"

    def compute(self, *inputs: Array) -> Array:
        return split(super().compute(*inputs), self.heads)


@dataclass(frozen=True)
class SlicedLinearToHeads(ConstantFormula):
    """(x, weight): each head's slice of x times that head's own square matrix."""

    as_text = "xₕ · Wₕ for the slice of each head"
    as_latex = r"X_h W_h"

    def compute(self, *inputs: Array) -> Array:
        x, weight = wide(*inputs)
        return np.asarray(split(x, len(weight)) @ weight)


@dataclass(frozen=True)
class FactoredLinearToHeads(Operation):
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
class ConcatHeads(ConstantFormula):
    """(mixed): the heads side by side, (B, H, T, E) -> (B, T, H·E)."""

    as_text = "head after head, side by side"
    as_latex = r"[\mathrm{head}_1; \ldots; \mathrm{head}_H]"

    def compute(self, *inputs: Array) -> Array:
        (x,) = wide(*inputs)
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@dataclass(frozen=True)
class TokenLogits(Linear):
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
