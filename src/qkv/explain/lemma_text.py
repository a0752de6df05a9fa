"""The lemma for the terminal: a table, a text plot and the derivation in words."""

from qkv.explain.lemma import CONFIDENCE, DERIVATION, KEYS, Lemma, Row
from qkv.explain.matrix import figure

BAR = 24


def lemma_text(lemma: Lemma) -> str:
    return "\n".join(
        [
            "Why √d_k: if the components of q and k are independent with mean 0 and variance 1,",
            "then q·k has mean 0 and variance d_k.",
            "",
            *_table(lemma),
            "",
            *_plot(lemma),
            "",
            DERIVATION,
        ]
    )


def _table(lemma: Lemma) -> list[str]:
    head = (
        " d_k  mean of q·k    ± (0)  Σ mean qᵢkᵢ   variance  (d_k)  variance ÷ d_k   interval"
        "       after ÷√d_k"
    )
    lines = [head, *(_line(row) for row in lemma.rows), ""]
    percent = f"{100 * CONFIDENCE:.1f}"
    lines += [
        f"{lemma.samples:,} draws of q and k, seed {lemma.seed}. With {percent} % confidence all "
        "means lie within ± of 0 and",
        "all ratios inside their interval around 1. Linearity of expectation: the mean of the sum "
        "is the sum of the means.",
    ]
    return lines


def _line(row: Row) -> str:
    off = (row.mean_high - row.mean_low) / 2
    mark = "in" if row.low <= row.ratio <= row.high else "OUT"
    return (
        f"{row.d_k:4d}  {figure(row.mean, 4):>11}  {figure(off, 4):>7}  "
        f"{figure(row.sum_of_means, 4):>11}  {row.variance:9.3f}  {row.d_k:5d}  "
        f"{row.ratio:14.4f}   {row.low:.4f}–{row.high:.4f} {mark:3}  {row.scaled_variance:10.4f}"
    )


def _plot(lemma: Lemma) -> list[str]:
    lines = [
        f"What that does to a softmax over {KEYS} keys: the largest weight, and what is left of "
        "the gradient",
        f" d_k  {'without ÷√d_k':<{BAR + 6}}{'with ÷√d_k':<{BAR + 6}}entropy (nats)  gradient",
    ]
    for row in lemma.rows:
        hard, soft = row.unscaled, row.scaled
        lines.append(
            f"{row.d_k:4d}  {_bar(hard.largest)}{_bar(soft.largest)}"
            f"{hard.entropy:5.2f}  {soft.entropy:5.2f}    {hard.gradient:.3f}  {soft.gradient:.3f}"
        )
    lines.append("(entropy and gradient: first without the division, then with it)")
    return lines


def _bar(share: float) -> str:
    return f"{'█' * round(share * BAR):<{BAR}} {share:.2f} "
