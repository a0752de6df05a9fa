"""How the training went, as one picture: losses, the watched metric, the learning rate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qkv.report.summary import Numbers, Progress, figure, name, read_progress, smoothed, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart in grey by lightness, and by width and marker besides.
INK = "#1b1b1d"
MUTED = "#6b6b70"
FAINT = "#a9b8cc"
TRAINING = "#1f4e8c"
HELD_OUT = "#d1622b"
POINTS = 1_200  # a wider picture would not show more
WIDTH = 4.8  # inches; narrow, so that letters stay readable on a phone
HEIGHTS = {"loss": 2.3, "metric": 1.8, "rate": 0.6}  # inches
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}


def curves(lines: Sequence[Mapping[str, Any]], metric: str, higher_is_better: bool) -> "Figure":
    """A picture of the run; a loss that is not finite is a gap with a cross below it."""
    return draw(read_progress(lines, metric, higher_is_better), metric)


def draw(progress: Progress, metric: str) -> "Figure":
    """The same for a run that is already read."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if metric != "loss":
        panels = ["loss", "metric", "rate"]
    else:
        panels = ["loss", "rate"]
    heights = [HEIGHTS[panel] for panel in panels]
    with mpl.rc_context(STYLE):
        picture = Figure(figsize=(WIDTH, sum(heights) + 0.7))
        grid = picture.subplots(
            len(panels),
            1,
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": heights, **_margins(picture)},
        )
        axes = dict(zip(panels, grid[:, 0], strict=True))
        _loss(axes["loss"], progress)
        _held_out(axes["loss"], progress, "loss")
        if "metric" in axes:
            _held_out(axes["metric"], progress, metric)
            axes["metric"].set_ylabel(name(metric))
        _best(axes.get("metric", axes["loss"]), progress, metric)
        _rate(axes["rate"], progress)
        picture.align_ylabels()
        for panel in axes.values():
            if panel.get_legend_handles_labels()[0]:
                panel.legend(frameon=False)
    return picture


def _margins(picture: "Figure") -> dict[str, float]:
    """Where the panels end, as shares of the picture.

    Fixed, because the solver behind matplotlib's own layouts differs in the last bit from one
    time to the next, and the ids in an SVG are made of all bits.
    """
    height = picture.get_figheight()
    return {
        "left": 0.72 / WIDTH,
        "right": 1 - 0.1 / WIDTH,
        "bottom": 0.45 / height,
        "top": 1 - 0.08 / height,
        "hspace": 0.12,
    }


def _loss(axes: "Axes", progress: Progress) -> None:
    steps = progress.steps
    losses = progress.losses
    axes.set_ylabel("loss")
    broken = np.flatnonzero(np.isnan(losses))
    if len(broken) < len(losses):
        kept = thinned(losses, POINTS)
        line = smoothed(losses)
        axes.plot(steps[kept], losses[kept], color=FAINT, linewidth=0.7)
        line[broken] = np.nan
        kept = thinned(line, POINTS)
        _line(axes, steps[kept], line[kept], color=TRAINING, linewidth=1.8, label="training")
        finite = losses[~np.isnan(losses)]
        if finite.min() > 0 and finite.max() > 20 * np.median(finite):
            axes.set_yscale("log")  # one wild step must not hide all others
    if len(broken):
        marked = steps[broken[:: 1 + len(broken) // POINTS]]
        axes.plot(
            marked,
            np.full(len(marked), 0.03),
            "x",
            color=INK,
            markersize=5,
            transform=axes.get_xaxis_transform(),
            label=f"not finite ({len(broken):,})",
        )


def _held_out(axes: "Axes", progress: Progress, metric: str) -> None:
    steps, values = progress.held_out(metric)
    if values:
        marker = "s" if len(values) <= 40 else ""
        axes.plot(
            steps,
            values,
            color=HELD_OUT,
            linewidth=1.4,
            linestyle="--",
            marker=marker,
            markersize=3.5,
            label="held out",
        )


def _best(axes: "Axes", progress: Progress, metric: str) -> None:
    best = progress.best
    if best is None or metric not in best.scores:
        return
    value = best.scores[metric]
    axes.plot(
        best.step,
        value,
        "o",
        color=INK,
        markersize=9,
        fillstyle="none",
        label=f"best: {figure(value)} at step {best.step:,}",
    )


def _rate(axes: "Axes", progress: Progress) -> None:
    from matplotlib.ticker import MaxNLocator

    steps = progress.steps
    rates = progress.rates
    axes.set(xlabel="step", ylabel="rate")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    if np.isfinite(rates).any():
        kept = thinned(rates, POINTS)
        _line(axes, steps[kept], rates[kept], color=MUTED, linewidth=1.2)
        axes.set_ylim(0, max(1.0, float(np.nanmax(rates))) * 1.08)


def _line(axes: "Axes", steps: Numbers, values: Numbers, **look: Any) -> None:
    """A line, with dots where it would be too short to see."""
    axes.plot(steps, values, marker="o" if len(steps) < 5 else "", markersize=4, **look)
