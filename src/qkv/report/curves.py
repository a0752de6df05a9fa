"""The learning curves as one picture: losses, the selection metric, the learning rate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qkv.report.summary import (
    Floats,
    LearningCurves,
    format_score,
    metric_name,
    read_curves,
    smooth,
    thin,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable in grey by lightness, and by width and marker besides.
INK = "#1b1b1d"
MUTED = "#6b6b70"
FAINT = "#a9b8cc"
TRAINING = "#1f4e8c"
VALIDATION = "#d1622b"

MAX_POINTS = 1_200  # a wider picture would not show more

WIDTH = 4.8  # inches; narrow, so that letters stay readable on a phone

HEIGHTS = {"loss": 2.3, "metric": 1.8, "lr": 0.6}  # inches

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


def plot_log(log: Sequence[Mapping[str, Any]], metric: str, higher_is_better: bool) -> "Figure":
    """A picture of the run; a loss that is not finite is a gap with a cross below it."""
    return plot_curves(read_curves(log, metric, higher_is_better), metric)


def plot_curves(curves: LearningCurves, metric: str) -> "Figure":
    """The same for a log that was read already."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = ["loss", "metric", "lr"]
    if metric == "loss":
        panels.remove("metric")
    heights = [HEIGHTS[panel] for panel in panels]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, sum(heights) + 0.7))
        grid = figure.subplots(
            len(panels),
            1,
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": heights, **_margins(figure)},
        )
        axes = dict(zip(panels, grid[:, 0], strict=True))
        _plot_loss(axes["loss"], curves)
        _plot_validation(axes["loss"], curves, "loss")
        if "metric" in axes:
            _plot_validation(axes["metric"], curves, metric)
            axes["metric"].set_ylabel(metric_name(metric))
        _plot_best(axes.get("metric", axes["loss"]), curves, metric)
        _plot_learning_rate(axes["lr"], curves)
        figure.align_ylabels()
        for panel in axes.values():
            if panel.get_legend_handles_labels()[0]:
                panel.legend(frameon=False)
    return figure


def _margins(figure: "Figure") -> dict[str, float]:
    """Where the panels end, as fractions of the picture.

    Fixed, because the solver behind matplotlib's own layouts differs in the last bit from one
    time to the next, and the ids in an SVG are derived from all bits.
    """
    height = figure.get_figheight()
    return {
        "left": 0.72 / WIDTH,
        "right": 1 - 0.1 / WIDTH,
        "bottom": 0.45 / height,
        "top": 1 - 0.08 / height,
        "hspace": 0.12,
    }


def _plot_loss(axes: "Axes", curves: LearningCurves) -> None:
    steps = curves.steps
    losses = curves.losses
    axes.set_ylabel("loss")
    not_finite = np.flatnonzero(np.isnan(losses))
    if len(not_finite) < len(losses):
        indices = thin(losses, MAX_POINTS)
        axes.plot(steps[indices], losses[indices], color=FAINT, linewidth=0.7)
        line = smooth(losses)
        line[not_finite] = np.nan
        indices = thin(line, MAX_POINTS)
        _plot_line(
            axes, steps[indices], line[indices], color=TRAINING, linewidth=1.8, label="training"
        )
        finite = losses[~np.isnan(losses)]
        if finite.min() > 0 and finite.max() > 20 * np.median(finite):
            axes.set_yscale("log")  # one wild step must not hide all others
    if len(not_finite):
        stride = 1 + len(not_finite) // MAX_POINTS
        crosses = steps[not_finite[::stride]]
        axes.plot(
            crosses,
            np.full(len(crosses), 0.03),
            "x",
            color=INK,
            markersize=5,
            transform=axes.get_xaxis_transform(),
            label=f"not finite ({len(not_finite):,})",
        )


def _plot_validation(axes: "Axes", curves: LearningCurves, metric: str) -> None:
    steps, values = curves.validation(metric)
    if not values:
        return
    marker = "s" if len(values) <= 40 else ""
    axes.plot(
        steps,
        values,
        color=VALIDATION,
        linewidth=1.4,
        linestyle="--",
        marker=marker,
        markersize=3.5,
        label="validation",
    )


def _plot_best(axes: "Axes", curves: LearningCurves, metric: str) -> None:
    best = curves.best
    if best is None or metric not in best.scores:
        return
    score = best.scores[metric]
    axes.plot(
        best.step,
        score,
        "o",
        color=INK,
        markersize=9,
        fillstyle="none",
        label=f"best: {format_score(score)} at step {best.step:,}",
    )


def _plot_learning_rate(axes: "Axes", curves: LearningCurves) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="step", ylabel="lr")
    axes.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    scales = curves.lr_scales
    if np.isfinite(scales).any():
        indices = thin(scales, MAX_POINTS)
        _plot_line(axes, curves.steps[indices], scales[indices], color=MUTED, linewidth=1.2)
        axes.set_ylim(0, max(1.0, float(np.nanmax(scales))) * 1.08)


def _plot_line(axes: "Axes", steps: Floats, values: Floats, **style: Any) -> None:
    """A line, with dots where it would be too short to see."""
    marker = "o" if len(steps) < 5 else ""
    axes.plot(steps, values, marker=marker, markersize=4, **style)
