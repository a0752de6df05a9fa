"""The lemma for the terminal: a table, a text plot and the derivation in words, in 80 columns."""

from qkv.explain.lemma import CONFIDENCE, DERIVATION, KEYS, Lemma, Row
from qkv.explain.matrix import figure

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


def _line(row: Row) -> str:
    off = (row.mean_high - row.mean_low) / 2
    mark = " " if row.low <= row.ratio <= row.high else "!"
    mean, total = (figure(value, 3) for value in (row.mean, row.sum_of_means))
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
