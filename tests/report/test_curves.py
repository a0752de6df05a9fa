"""The picture of a run: its panels, its marks, and runs that are hard to draw."""

import io
import math
import time

import numpy as np
import pytest

from qkv.report import plot_log


def _steps(count, loss=lambda step: 1 + 1 / step):
    return [
        {"step": step, "loss": loss(step), "lr_scale": step / count, "finite": True}
        for step in range(1, count + 1)
    ]


def _drawn(lines, metric="loss", higher_is_better=False):
    picture = plot_log(lines, metric, higher_is_better)
    picture.savefig(io.BytesIO(), format="png")  # nothing warns, warnings are errors
    return picture


def _labels(axes):
    return [line.get_label() for line in axes.get_lines() if line.get_label()[0] != "_"]


def test_a_run_that_watches_the_loss_has_losses_and_rate() -> None:
    lines = [*_steps(30), {"step": 20, "validation": {"loss": 1.25}}]
    losses, rate = _drawn(lines).axes
    assert _labels(losses) == ["training", "validation", "best: 1.250 at step 20"]
    assert rate.get_ylabel() == "lr"


def test_another_watched_metric_has_its_own_panel_with_its_best_point() -> None:
    found = [(10, 0.5), (20, 0.75), (30, 0.7)]
    lines = _steps(30) + [{"step": s, "validation": {"accuracy": value}} for s, value in found]
    losses, accuracy, _ = _drawn(lines, "accuracy", True).axes
    assert _labels(losses) == ["training"]  # no validation loss was measured
    validation, best = accuracy.get_lines()
    assert list(validation.get_ydata()) == [0.5, 0.75, 0.7]
    assert (list(best.get_xdata()), list(best.get_ydata())) == ([20], [0.75])


def test_losses_that_are_not_finite_are_gaps_with_crosses() -> None:
    lines = _steps(50, lambda step: math.nan if step in (7, 8) else 2.0)
    axes = _drawn(lines).axes[0]
    raw, line, crosses = axes.get_lines()
    for drawn in (raw, line):
        assert np.flatnonzero(np.isnan(drawn.get_ydata())).tolist() == [6, 7]
    assert crosses.get_xdata().tolist() == [7, 8]
    assert crosses.get_label() == "not finite (2)"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"step": 1, "loss": 2.0}],
        [{"step": 1, "loss": 2.0, "lr_scale": 1.0}],
        [{"step": 1, "loss": math.nan, "lr_scale": 1.0}],
        [{"step": 4, "validation": {"accuracy": 0.5}}],
        [{"step": 1, "loss": 0.0}, {"step": 2, "loss": 0.0}],
        [{"step": 1, "loss": -2.0}, {"step": 2, "loss": 1e300}],
    ],
)
def test_odd_runs_are_drawn_without_a_warning(lines: list[dict]) -> None:
    for metric in ("loss", "accuracy"):
        _drawn(lines, metric)


def test_a_run_of_one_step_is_a_visible_dot() -> None:
    line = _drawn([{"step": 1, "loss": 2.0}]).axes[0].get_lines()[-1]
    assert line.get_marker() == "o"


def test_one_wild_step_does_not_hide_the_others() -> None:
    assert _drawn(_steps(99, lambda step: 1e9 if step == 50 else 2)).axes[0].get_yscale() == "log"
    assert _drawn(_steps(99)).axes[0].get_yscale() == "linear"


def test_a_million_steps_are_drawn_as_few_points_in_little_time() -> None:
    lines = _steps(1_000_000)
    start = time.process_time()
    picture = _drawn(lines)
    assert time.process_time() - start < 30
    for axes in picture.axes:
        assert all(len(line.get_xdata()) <= 1_200 for line in axes.get_lines())


def test_training_and_held_out_differ_in_grey_too() -> None:
    lines = [*_steps(30), {"step": 20, "validation": {"loss": 1.25}}]
    raw, training, validation, _ = _drawn(lines).axes[0].get_lines()
    assert training.get_linestyle() != validation.get_linestyle()
    assert training.get_linewidth() > raw.get_linewidth()


def test_no_solver_lays_out_the_panels_because_its_last_bits_vary() -> None:
    assert plot_log(_steps(3), "loss", False).get_layout_engine() is None
