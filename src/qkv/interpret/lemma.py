"""Why √d_k: the variance lemma of the notes, measured.

If the components of q and k are independent with mean 0 and variance 1, then q·k = Σ qᵢkᵢ has mean
0 and variance d_k. Dividing by √d_k brings the variance back to 1. Without the division the
softmax of wide vectors is a hard choice that passes on almost no gradient.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qkv.attention import softmax
from qkv.errors import UsageError
from qkv.interpret.matrix import format_number

# FOLDED explain/lemma_text: The lemma for the terminal: a table, a text plot and the derivation
#   in words, in 80 columns.
# FOLDED explain/lemma_picture: The lemma as a picture: the variance against its theory, and
#   what happens to the softmax.

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
class LemmaRow:
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
    rows: tuple[LemmaRow, ...]

    def json(self) -> dict[str, Any]:
        table = {"seed": self.seed, "samples": self.samples, "confidence": CONFIDENCE, "keys": KEYS}
        return {**table, "rows": [asdict(row) for row in self.rows]}


def measure_lemma(seed: int = 0, samples: int = 20_000) -> Lemma:
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


def _row(
    d_k: int, samples: int, products: _Products, unscaled: Softness, scaled: Softness
) -> LemmaRow:
    i, n = WIDTHS.index(d_k), samples
    mean = float(products.first[i]) / n
    variance = (float(products.second[i]) - n * mean**2) / (n - 1)
    scaled_variance = (float(products.scaled[i]) - n * mean**2 / d_k) / (n - 1)
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * 2 * len(WIDTHS)))  # means and variances
    mean_off = z * (d_k / n) ** 0.5
    # (qᵢkᵢ)⁴ has mean 9, so q·k has fourth moment 3d² + 6d, which gives the spread of a variance.
    off = z * ((2 + 6 / d_k) / n) ** 0.5
    return LemmaRow(
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


BAR = 14


def lemma_text(lemma: Lemma) -> str:
    """The whole page."""
    return "\n".join(
        [
            "If the components of q and k are independent with mean 0 and variance 1,",
            "then q·k has mean 0 and variance d_k, and q·k ÷ √d_k has variance 1.",
            "",
            *_table(lemma),
            "",
            *_plot(lemma),
            "",
            "Why",
            DERIVATION,
        ]
    )


def _table(lemma: Lemma) -> list[str]:
    return [
        "      mean of q·k   sum of the   variance of q·k             variance",
        " d_k  and its ±     means qᵢkᵢ   and ÷ d_k, interval         of q·k ÷ √d_k",
        *(_line(row) for row in lemma.rows),
        "   …  theory: 0     the same     theory: d_k  1              theory: 1",
        "",
        f"{lemma.samples:,} draws of q and k, seed {lemma.seed}. At {CONFIDENCE:.1%} confidence, "
        "all of this at once:",
        "the means lie within ± of 0, the ratios inside their intervals around 1.",
    ]


def _line(row: LemmaRow) -> str:
    off = (row.mean_high - row.mean_low) / 2
    mark = " " if row.low <= row.ratio <= row.high else "!"
    mean, total = (format_number(value, 3) for value in (row.mean, row.sum_of_means))
    return (
        f"{row.d_k:4d} {mean:>7} ±{off:.3f}  {total:>10}  {row.variance:10.2f} "
        f"{row.ratio:6.3f}{mark} {row.low:.3f}–{row.high:.3f}  {row.scaled_variance:10.3f}"
    )


def _plot(lemma: Lemma) -> list[str]:
    lines = [
        f"What the missing division does to a softmax over {KEYS} keys",
        "",
        "      largest weight                             entropy        gradient",
        f" d_k  {'without ÷√d_k':<{BAR + 7}}{'with':<{BAR + 8}}without  with  without  with",
    ]
    for row in lemma.rows:
        hard, soft = row.unscaled, row.scaled
        lines.append(
            f"{row.d_k:4d}  {_bar(hard.largest)}{_bar(soft.largest)} "
            f"{hard.entropy:6.2f} {soft.entropy:5.2f}   {hard.gradient:6.3f} {soft.gradient:5.3f}"
        )
    return lines


def _bar(share: float) -> str:
    return f"{share:.2f} {'█' * round(share * BAR):<{BAR}}  "


FORMATS = (".png", ".svg", ".pdf")


def check_image_path(path: Path) -> None:
    """The path must end in a format that can be drawn, in a folder that exists."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f'cannot draw "{path.name}"; end it with one of {", ".join(FORMATS)}')
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder; make it first")


def plot_lemma(lemma: Lemma, path: Path) -> None:
    """Write the picture in the format that the path ends with."""
    check_image_path(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    widths = [row.d_k for row in lemma.rows]
    # The same bytes for the same numbers: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "qkv", "font.size": 9}):
        picture = Figure(figsize=(9.0, 3.6), layout="constrained")
        variance, weight = picture.subplots(1, 2)

        low = [row.variance - row.variance_low for row in lemma.rows]
        high = [row.variance_high - row.variance for row in lemma.rows]
        measured = [row.variance for row in lemma.rows]
        variance.plot(widths, widths, color="0.6", label="theory: d_k")
        variance.errorbar(widths, measured, yerr=[low, high], fmt="o", label="q·k")
        scaled = [row.scaled_variance for row in lemma.rows]
        variance.plot(widths, scaled, "s", color="C2", label="q·k ÷ √d_k")
        variance.axhline(1.0, color="0.6", linestyle="--", label="theory: 1")
        variance.set(xscale="log", yscale="log", xlabel="d_k", ylabel="variance")
        variance.set_title("The variance of q·k is d_k")

        for name, marker, colour in (("unscaled", "o", "C0"), ("scaled", "s", "C2")):
            largest = [getattr(row, name).largest for row in lemma.rows]
            label = "without ÷ √d_k" if name == "unscaled" else "with ÷ √d_k"
            weight.plot(widths, largest, f"{marker}-", color=colour, label=label)
        weight.axhline(1 / KEYS, color="0.6", linestyle="--", label=f"all {KEYS} keys alike")
        weight.set(xscale="log", xlabel="d_k", ylabel="largest weight", ylim=(0, 1.02))
        weight.set_title("Without the division, softmax chooses one key")
        for axes in (variance, weight):
            axes.legend(frameon=False)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            picture.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
