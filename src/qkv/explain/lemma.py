"""Why √d_k: the variance lemma of the notes, measured.

If the components of q and k are independent with mean 0 and variance 1, then q·k = Σ qᵢkᵢ has mean
0 and variance d_k. Dividing by √d_k brings the variance back to 1. Without the division the
softmax of wide vectors is a hard choice that passes on almost no gradient.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.attention import softmax
from qkv.errors import UsageError

WIDTHS = tuple(2**i for i in range(11))  # 1 … 1024
CONFIDENCE = 0.999  # that all intervals of the table hold at once
KEYS, QUERIES = 16, 1000  # one softmax row chooses among so many keys; rows averaged over
FEWEST, CHUNK = 1000, 4096

DERIVATION = """\
Mean      E[q·k] = E[Σ qᵢkᵢ] = Σ E[qᵢkᵢ]    linearity of expectation: the mean
                                            of a sum is the sum of the means
                 = Σ E[qᵢ]·E[kᵢ] = 0        independent, each with mean 0
Variance  var[q·k] = Σ var[qᵢkᵢ]            the terms are independent
          var[qᵢkᵢ] = E[qᵢ²]·E[kᵢ²] = 1     so d_k terms have variance d_k
Scaled    var[q·k ÷ √d_k] = d_k ÷ d_k = 1   a factor enters a variance squared"""


@dataclass(frozen=True)
class Softness:
    """What softmax makes of one row of scores, averaged over many rows."""

    entropy: float  # nats; log(KEYS) if all keys get the same
    largest: float  # the largest weight
    gradient: float  # Frobenius norm of ∂weights/∂scores


@dataclass(frozen=True)
class Row:
    """One d_k: q·k measured beside the theory."""

    d_k: int
    mean: float  # of q·k; theory 0
    mean_low: float
    mean_high: float
    sum_of_means: float  # Σ mean(qᵢkᵢ): the same number, by linearity
    variance: float  # of q·k; theory d_k
    variance_low: float
    variance_high: float
    ratio: float  # variance / d_k
    low: float  # interval around 1 for that ratio
    high: float
    scaled_variance: float  # of q·k/√d_k; theory 1
    unscaled: Softness
    scaled: Softness


@dataclass(frozen=True)
class Lemma:
    """The whole table."""

    seed: int
    samples: int
    rows: tuple[Row, ...]

    def json(self) -> dict[str, Any]:
        table = {"seed": self.seed, "samples": self.samples, "confidence": CONFIDENCE, "keys": KEYS}
        return {**table, "rows": [asdict(row) for row in self.rows]}


def measure(seed: int = 0, samples: int = 20_000) -> Lemma:
    """The lemma for d_k = 1 … 1024, the same numbers for the same seed and samples."""
    if samples < FEWEST:
        raise UsageError(f"samples={samples} is too few for the intervals; use {FEWEST} or more")
    products = _Products(seed, samples)
    rows = [_row(width, samples, products, *_softness(seed, width)) for width in WIDTHS]
    return Lemma(seed, samples, tuple(rows))


class _Products:
    """Sums over many draws of q and k: of q·k and its square for each width, and of each qᵢkᵢ."""

    def __init__(self, seed: int, samples: int) -> None:
        last = [width - 1 for width in WIDTHS]
        roots = torch.tensor(WIDTHS, dtype=torch.float64).sqrt()
        self.first, self.second, self.scaled = torch.zeros(3, len(WIDTHS), dtype=torch.float64)
        self.each = torch.zeros(WIDTHS[-1], dtype=torch.float64)
        for terms in _terms(seed, samples):
            dots = terms.cumsum(dim=1)[:, last]  # q·k of the first d_k components, for each d_k
            self.first += dots.sum(dim=0)
            self.second += dots.square().sum(dim=0)
            self.scaled += (dots / roots).square().sum(dim=0)
            self.each += terms.sum(dim=0)


def _terms(seed: int, samples: int) -> Iterator[Tensor]:
    """qᵢkᵢ in chunks, (chunk, 1024)."""
    draws = np.random.default_rng(seed)
    for start in range(0, samples, CHUNK):
        q, k = draws.standard_normal((2, min(CHUNK, samples - start), WIDTHS[-1]))
        yield torch.from_numpy(q * k)


def _row(d_k: int, samples: int, products: _Products, unscaled: Softness, scaled: Softness) -> Row:
    i, n = WIDTHS.index(d_k), samples
    mean = float(products.first[i]) / n
    variance = (float(products.second[i]) - n * mean**2) / (n - 1)
    scaled_variance = (float(products.scaled[i]) - n * mean**2 / d_k) / (n - 1)
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * 2 * len(WIDTHS)))  # means and variances
    mean_off = z * (d_k / n) ** 0.5
    # (qᵢkᵢ)⁴ has mean 9, so q·k has fourth moment 3d² + 6d, which gives the spread of a variance.
    off = z * ((2 + 6 / d_k) / n) ** 0.5
    return Row(
        d_k=d_k,
        mean=mean,
        mean_low=mean - mean_off,
        mean_high=mean + mean_off,
        sum_of_means=float(products.each[:d_k].sum()) / n,
        variance=variance,
        variance_low=variance / (1 + off),
        variance_high=variance / (1 - off),
        ratio=variance / d_k,
        low=1 - off,
        high=1 + off,
        scaled_variance=scaled_variance,
        unscaled=unscaled,
        scaled=scaled,
    )


def _softness(seed: int, d_k: int) -> tuple[Softness, Softness]:
    """Random queries that choose among random keys, without and with the division."""
    draws = np.random.default_rng(seed)
    q, k = (draws.standard_normal((QUERIES, rows, d_k)) for rows in (1, KEYS))
    scores = torch.from_numpy(q @ k.transpose(0, 2, 1))[:, 0]  # (QUERIES, KEYS)
    return _softness_of(scores), _softness_of(scores * d_k**-0.5)


def _softness_of(scores: Tensor) -> Softness:
    weights = softmax(scores)
    squares = weights.square().sum(dim=1)
    # ∂wᵢ/∂sⱼ = wᵢ(δᵢⱼ − wⱼ): the sum of its squares in closed form
    slopes = squares - 2 * weights.pow(3).sum(dim=1) + squares.square()
    return Softness(
        entropy=float(torch.special.entr(weights).sum(dim=1).mean()),
        largest=float(weights.amax(dim=1).mean()),
        gradient=float(slopes.clamp(min=0).sqrt().mean()),
    )
