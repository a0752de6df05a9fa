"""Why √d_k: the variance lemma, measured, as a table for the terminal and as a plot.

If the components of q and k are independent with mean 0 and variance 1, then q·k = Σ qᵢkᵢ has mean
0 and variance d_k. Dividing by √d_k brings the variance back to 1. Without the division the
softmax of wide vectors is close to one-hot and passes on almost no gradient (Vaswani et al. 2017,
footnote 4).
"""

import io
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
from qkv.files import check_output_path
from qkv.interpret.matrix import format_number
from qkv.interpret.step import Walk, WalkStep
from qkv.interpret.trace.operations import InputValue

WIDTHS = tuple(2**i for i in range(11))  # 1 … 1024

CONFIDENCE = 0.999  # that all intervals of the table hold at once

KEYS = 16  # that each row of the softmax distributes its weight over
QUERIES = 1000  # rows that its statistics are averaged over

MIN_SAMPLES = 1000
CHUNK_SIZE = 4096  # samples in memory at once

BAR_WIDTH = 14  # characters of a full bar in the text plot
IMAGE_FORMATS = (".png", ".svg", ".pdf")

DERIVATION = """\
Mean      E[q·k] = E[Σ qᵢkᵢ] = Σ E[qᵢkᵢ]    linearity of expectation: the mean
                                            of a sum is the sum of the means
                 = Σ E[qᵢ]·E[kᵢ] = 0        independent, each with mean 0
Variance  var[q·k] = Σ var[qᵢkᵢ]            the terms are independent
          var[qᵢkᵢ] = E[qᵢ²]·E[kᵢ²] = 1     so d_k terms have variance d_k
Scaled    var[q·k ÷ √d_k] = d_k ÷ d_k = 1   a factor enters a variance squared"""


DERIVATION_LATEX = r"""\subsection*{Why}

\begin{align*}
\mathbb{E}[q \cdot k] &= \mathbb{E}\Bigl[\sum_i q_i k_i\Bigr] = \sum_i \mathbb{E}[q_i k_i]
  && \text{linearity of expectation} \\
  &= \sum_i \mathbb{E}[q_i]\,\mathbb{E}[k_i] = 0
  && \text{independent, each with mean 0} \\
\operatorname{var}[q \cdot k] &= \sum_i \operatorname{var}[q_i k_i]
  && \text{the terms are independent} \\
\operatorname{var}[q_i k_i] &= \mathbb{E}[q_i^2]\,\mathbb{E}[k_i^2] = 1
  && \text{so $d_k$ terms have variance $d_k$} \\
\operatorname{var}\Bigl[\frac{q \cdot k}{\sqrt{d_k}}\Bigr] &= \frac{d_k}{d_k} = 1
  && \text{a factor enters a variance squared}
\end{align*}"""


@dataclass(frozen=True)
class SoftmaxStatistics:
    """How peaked a softmax is, averaged over many rows of scores."""

    entropy: float  # in nats; log(KEYS) if all keys get the same weight
    largest: float  # the largest weight
    gradient: float  # Frobenius norm of ∂weights/∂scores


@dataclass(frozen=True)
class LemmaRow:
    """The measurements for one d_k, with the joint confidence intervals around them."""

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
    unscaled: SoftmaxStatistics
    scaled: SoftmaxStatistics


@dataclass(frozen=True)
class Lemma:
    """The measurements for all widths."""

    seed: int
    samples: int
    rows: tuple[LemmaRow, ...]

    def json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "samples": self.samples,
            "confidence": CONFIDENCE,
            "keys": KEYS,
            "rows": [asdict(row) for row in self.rows],
        }


def measure_lemma(seed: int = 0, samples: int = 20_000) -> Lemma:
    """The lemma for d_k = 1 … 1024; the same seed and samples give the same numbers."""
    if samples < MIN_SAMPLES:
        raise UsageError(
            f"samples={samples} is too few for the intervals; use {MIN_SAMPLES} or more"
        )
    sums = _sum_products(seed, samples)
    rows = []
    for d_k in WIDTHS:
        unscaled, scaled = _softmax_statistics(seed, d_k)
        rows.append(_row(d_k, samples, sums, unscaled, scaled))
    return Lemma(seed, samples, tuple(rows))


@dataclass
class _ProductSums:
    """Sums over all samples of q and k."""

    dots: Tensor  # of q·k, for each width
    squares: Tensor  # of (q·k)²
    scaled_squares: Tensor  # of (q·k ÷ √d_k)²
    terms: Tensor  # of each qᵢkᵢ


def _sum_products(seed: int, samples: int) -> _ProductSums:
    last = [width - 1 for width in WIDTHS]
    roots = torch.tensor(WIDTHS, dtype=torch.float64).sqrt()
    sums = _ProductSums(
        dots=torch.zeros(len(WIDTHS), dtype=torch.float64),
        squares=torch.zeros(len(WIDTHS), dtype=torch.float64),
        scaled_squares=torch.zeros(len(WIDTHS), dtype=torch.float64),
        terms=torch.zeros(WIDTHS[-1], dtype=torch.float64),
    )
    for terms in _term_chunks(seed, samples):
        # The first d_k components of the widest vectors serve every smaller width.
        dots = terms.cumsum(dim=1)[:, last]
        sums.dots += dots.sum(dim=0)
        sums.squares += dots.square().sum(dim=0)
        sums.scaled_squares += (dots / roots).square().sum(dim=0)
        sums.terms += terms.sum(dim=0)
    return sums


def _term_chunks(seed: int, samples: int) -> Iterator[Tensor]:
    """qᵢkᵢ in chunks, (chunk, 1024)."""
    generator = np.random.default_rng(seed)
    for start in range(0, samples, CHUNK_SIZE):
        size = min(CHUNK_SIZE, samples - start)
        q, k = generator.standard_normal((2, size, WIDTHS[-1]))
        yield torch.from_numpy(q * k)


def _row(
    d_k: int,
    samples: int,
    sums: _ProductSums,
    unscaled: SoftmaxStatistics,
    scaled: SoftmaxStatistics,
) -> LemmaRow:
    i = WIDTHS.index(d_k)
    n = samples
    mean = float(sums.dots[i]) / n
    variance = (float(sums.squares[i]) - n * mean**2) / (n - 1)
    scaled_variance = (float(sums.scaled_squares[i]) - n * mean**2 / d_k) / (n - 1)
    # Bonferroni: the confidence is split over a mean and a variance for each width.
    z = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * 2 * len(WIDTHS)))
    mean_margin = z * (d_k / n) ** 0.5
    # (qᵢkᵢ)⁴ has mean 9, so q·k has fourth moment 3d² + 6d, which gives the spread of a variance.
    margin = z * ((2 + 6 / d_k) / n) ** 0.5
    return LemmaRow(
        d_k=d_k,
        mean=mean,
        mean_low=mean - mean_margin,
        mean_high=mean + mean_margin,
        sum_of_means=float(sums.terms[:d_k].sum()) / n,
        variance=variance,
        variance_low=variance / (1 + margin),
        variance_high=variance / (1 - margin),
        ratio=variance / d_k,
        low=1 - margin,
        high=1 + margin,
        scaled_variance=scaled_variance,
        unscaled=unscaled,
        scaled=scaled,
    )


def _softmax_statistics(seed: int, d_k: int) -> tuple[SoftmaxStatistics, SoftmaxStatistics]:
    """Of random queries and keys, without and with the division by √d_k."""
    generator = np.random.default_rng(seed)
    q = generator.standard_normal((QUERIES, 1, d_k))
    k = generator.standard_normal((QUERIES, KEYS, d_k))
    scores = torch.from_numpy(q @ k.transpose(0, 2, 1))[:, 0]  # (QUERIES, KEYS)
    return _statistics(scores), _statistics(scores * d_k**-0.5)


def _statistics(scores: Tensor) -> SoftmaxStatistics:
    weights = softmax(scores)
    squares = weights.square().sum(dim=1)
    # ∂wᵢ/∂sⱼ = wᵢ(δᵢⱼ − wⱼ): the sum of its squares in closed form
    squared_norm = squares - 2 * weights.pow(3).sum(dim=1) + squares.square()
    return SoftmaxStatistics(
        entropy=float(torch.special.entr(weights).sum(dim=1).mean()),
        largest=float(weights.amax(dim=1).mean()),
        gradient=float(squared_norm.clamp(min=0).sqrt().mean()),
    )


def lemma_walk(lemma: Lemma) -> Walk:
    """The two tables as steps, so that a document or a page shows them as it shows a worksheet."""
    draws = f"{lemma.samples:,} draws of q and k, seed {lemma.seed}"
    variance = {
        "mean of q·k": [row.mean for row in lemma.rows],
        "±": [(row.mean_high - row.mean_low) / 2 for row in lemma.rows],
        "Σ means": [row.sum_of_means for row in lemma.rows],
        "variance": [row.variance for row in lemma.rows],
        "÷ d_k": [row.ratio for row in lemma.rows],
        "from": [row.low for row in lemma.rows],
        "to": [row.high for row in lemma.rows],
        "scaled": [row.scaled_variance for row in lemma.rows],
    }
    softmax_table = {
        "largest": [row.unscaled.largest for row in lemma.rows],
        "largest, scaled": [row.scaled.largest for row in lemma.rows],
        "entropy": [row.unscaled.entropy for row in lemma.rows],
        "entropy, scaled": [row.scaled.entropy for row in lemma.rows],
        "gradient": [row.unscaled.gradient for row in lemma.rows],
        "gradient, scaled": [row.scaled.gradient for row in lemma.rows],
    }
    steps = (
        _lemma_step(
            "variance",
            "The variance of q·k is d_k",
            ("var[q·k] = d_k", r"\operatorname{var}[q \cdot k] = d_k"),
            variance,
            draws,
            f"If the components of q and k are independent with mean 0 and variance 1, then q·k "
            f"has mean 0 and variance d_k, and q·k ÷ √d_k has variance 1. At {CONFIDENCE:.1%} "
            "confidence, all of this at once: the means lie within ± of 0, and variance ÷ d_k "
            "lies in its interval around 1. Σ means: the sum of the means of all qᵢkᵢ. Scaled: the "
            "variance of q·k ÷ √d_k.",
        ),
        _lemma_step(
            "softmax",
            f"What the missing division does to a softmax over {KEYS} keys",
            ("softmax(q·k)", r"\operatorname{softmax}(q \cdot k)"),
            softmax_table,
            f"the mean over {QUERIES:,} queries",
            "Largest: the largest weight. Without the division, the softmax of wide vectors gives "
            "one key nearly all the weight and passes on almost no gradient; scaled, it does not.",
        ),
    )
    return Walk("Why attention divides by √d_k", steps)


def _lemma_step(
    name: str,
    title: str,
    equation: tuple[str, str],
    columns: dict[str, list[float]],
    origin: str,
    sentence: str,
) -> WalkStep:
    """A table of measurements with a row for each d_k; equation: as text and as LaTeX."""
    return WalkStep(
        name=name,
        title=title,
        equation=equation[0],
        latex=equation[1],
        rows=tuple(str(width) for width in WIDTHS),
        columns=tuple(columns),
        value=np.array(list(columns.values())).T,
        operation=InputValue(f"measured: {origin}"),
        sentence=(sentence,),
        axes=("d_k", "measured"),
    )


def lemma_text(lemma: Lemma) -> str:
    """A table, a text plot and the derivation, in at most 80 columns."""
    return "\n".join(
        [
            "If the components of q and k are independent with mean 0 and variance 1,",
            "then q·k has mean 0 and variance d_k, and q·k ÷ √d_k has variance 1.",
            "",
            *_table_lines(lemma),
            "",
            *_plot_lines(lemma),
            "",
            "Why",
            DERIVATION,
        ]
    )


def _table_lines(lemma: Lemma) -> list[str]:
    return [
        "      mean of q·k   sum of the   variance of q·k             variance",
        " d_k  and its ±     means qᵢkᵢ   and ÷ d_k, interval         of q·k ÷ √d_k",
        *(_row_line(row) for row in lemma.rows),
        "   …  theory: 0     the same     theory: d_k  1              theory: 1",
        "",
        f"{lemma.samples:,} draws of q and k, seed {lemma.seed}. At {CONFIDENCE:.1%} confidence, "
        "all of this at once:",
        "the means lie within ± of 0, the ratios inside their intervals around 1.",
    ]


def _row_line(row: LemmaRow) -> str:
    margin = (row.mean_high - row.mean_low) / 2
    mark = " " if row.low <= row.ratio <= row.high else "!"
    mean = format_number(row.mean, 3)
    total = format_number(row.sum_of_means, 3)
    return (
        f"{row.d_k:4d} {mean:>7} ±{margin:.3f}  {total:>10}  {row.variance:10.2f} "
        f"{row.ratio:6.3f}{mark} {row.low:.3f}–{row.high:.3f}  {row.scaled_variance:10.3f}"
    )


def _plot_lines(lemma: Lemma) -> list[str]:
    lines = [
        f"What the missing division does to a softmax over {KEYS} keys",
        "",
        "      largest weight                             entropy        gradient",
        f" d_k  {'without ÷√d_k':<{BAR_WIDTH + 7}}{'with':<{BAR_WIDTH + 8}}"
        "without  with  without  with",
    ]
    for row in lemma.rows:
        unscaled = row.unscaled
        scaled = row.scaled
        lines.append(
            f"{row.d_k:4d}  {_bar(unscaled.largest)}{_bar(scaled.largest)} "
            f"{unscaled.entropy:6.2f} {scaled.entropy:5.2f}   "
            f"{unscaled.gradient:6.3f} {scaled.gradient:5.3f}"
        )
    return lines


def _bar(weight: float) -> str:
    bar = "█" * round(weight * BAR_WIDTH)
    return f"{weight:.2f} {bar:<{BAR_WIDTH}}  "


def check_image_path(path: Path) -> None:
    """A UsageError unless the path ends in an image format and its folder exists."""
    check_output_path(path, IMAGE_FORMATS)


def plot_lemma(lemma: Lemma, path: Path) -> None:
    """Writes the plot in the format that the path ends with."""
    check_image_path(path)
    try:
        _save_plot(lemma, path, path.suffix.lower().removeprefix("."))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def svg_of_lemma(lemma: Lemma) -> bytes:
    """The plot as SVG, for a page."""
    buffer = io.BytesIO()
    _save_plot(lemma, buffer, "svg")
    return buffer.getvalue()


def _save_plot(lemma: Lemma, target: Path | io.BytesIO, format: str) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # The same bytes for the same numbers: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "qkv", "font.size": 9}):
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        variance_axes, weight_axes = figure.subplots(1, 2)
        _plot_variance(variance_axes, lemma)
        _plot_weights(weight_axes, lemma)
        for axes in (variance_axes, weight_axes):
            axes.legend(frameon=False)
        metadata = {"Date": None} if format == "svg" else None
        figure.savefig(target, format=format, dpi=150, metadata=metadata)


def _plot_variance(axes: Any, lemma: Lemma) -> None:
    """The variance of q·k with and without the division, against the theory."""
    widths = [row.d_k for row in lemma.rows]
    variances = [row.variance for row in lemma.rows]
    below = [row.variance - row.variance_low for row in lemma.rows]
    above = [row.variance_high - row.variance for row in lemma.rows]
    scaled_variances = [row.scaled_variance for row in lemma.rows]
    axes.plot(widths, widths, color="0.6", label="theory: d_k")
    axes.errorbar(widths, variances, yerr=[below, above], fmt="o", label="q·k")
    axes.plot(widths, scaled_variances, "s", color="C2", label="q·k ÷ √d_k")
    axes.axhline(1.0, color="0.6", linestyle="--", label="theory: 1")
    axes.set(xscale="log", yscale="log", xlabel="d_k", ylabel="variance")
    axes.set_title("The variance of q·k is d_k")


def _plot_weights(axes: Any, lemma: Lemma) -> None:
    """The largest weight of a softmax with and without the division."""
    widths = [row.d_k for row in lemma.rows]
    unscaled = [row.unscaled.largest for row in lemma.rows]
    scaled = [row.scaled.largest for row in lemma.rows]
    axes.plot(widths, unscaled, "o-", color="C0", label="without ÷ √d_k")
    axes.plot(widths, scaled, "s-", color="C2", label="with ÷ √d_k")
    axes.axhline(1 / KEYS, color="0.6", linestyle="--", label=f"all {KEYS} keys alike")
    axes.set(xscale="log", xlabel="d_k", ylabel="largest weight", ylim=(0, 1.02))
    axes.set_title("Without the division, softmax chooses one key")
