"""What positions alone decide: which keys a query may attend to, and biases by distance."""

from dataclasses import dataclass

import numpy as np

from qkv.interpret.trace.operations.operation import Array, Operation, as_float64


@dataclass(frozen=True)
class AttentionMask(Operation):
    """(query positions, key positions): True where the query may attend to the key."""

    causal: bool = False
    before: int | None = None  # how far back a window reaches
    after: int | None = None

    @property
    def equation(self) -> str:
        equation = "key near query"
        if self.causal:
            equation = "key ≤ query"
        if self.before is not None:
            equation += f" and at most {self.before} before"
        if self.after is not None and not self.causal:
            equation += f", {self.after} after"
        return equation

    @property
    def latex(self) -> str:
        return r"j \le i" if self.causal else r"|i-j| \le w"

    def compute(self, *inputs: Array) -> Array:
        queries, keys = inputs
        distance = keys[None, :] - queries[:, None]  # (T, S)
        mask = np.ones_like(distance, dtype=bool)
        if self.causal:
            mask &= distance <= 0
        if self.before is not None:
            mask &= distance >= -self.before
        if self.after is not None:
            mask &= distance <= self.after
        return np.asarray(mask)


@dataclass(frozen=True)
class AlibiBias(Operation):
    """(query positions, key positions): ALiBi, a penalty per head that grows with distance.

    Press et al. 2022, "Train Short, Test Long".
    """

    slopes: tuple[float, ...] = ()

    @property
    def equation(self) -> str:
        return "−slope × distance"

    @property
    def latex(self) -> str:
        return r"-m_h |i-j|"

    def compute(self, *inputs: Array) -> Array:
        queries, keys = inputs
        distance = np.abs(keys[None, :] - queries[:, None])
        return np.asarray(-np.array(self.slopes)[None, :, None, None] * distance)


@dataclass(frozen=True)
class RelativeBias(Operation):
    """(query positions, key positions, table): T5's learned bias for each bucket of distances."""

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
        return as_float64(table)[0][bucket].transpose(2, 0, 1)[None]

    def _bucket(self, distance: Array, buckets: int) -> Array:
        """One bucket per distance up to half of them, then logarithmically wider ones."""
        first = np.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            first = (distance > 0) * buckets
            distance = np.abs(distance)
        else:
            distance = np.maximum(-distance, 0)
        exact = buckets // 2
        # float32, as T5 computes it: another precision would move distances at a boundary.
        log = np.log(np.maximum(distance, 1).astype(np.float32) / exact)
        far = exact + (log / np.log(self.max_distance / exact) * (buckets - exact)).astype(int)
        near_or_far = np.where(distance < exact, distance, np.minimum(far, buckets - 1))
        return np.asarray(first + near_or_far)
