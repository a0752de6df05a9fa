"""What is read from metrics.jsonl, and how it is smooth and thin out."""

import math

import numpy as np

from qkv.report.summary import read_curves, smooth, thin


def _evaluation(step, best=False, **scores):
    return {"step": step, "validation": scores, "tokens_seen": 7 * step, "best": best}


def test_steps_and_evaluations_are_told_apart_and_other_lines_ignored() -> None:
    lines = [
        {"step": 1, "loss": 2.5, "lr_scale": 0.5, "finite": True},
        {"step": 2, "loss": 2.0, "lr_scale": 1.0, "finite": False},
        _evaluation(2, loss=1.9, accuracy=0.7),
        {"summary": True, "loss": 1.0},
        {"step": 3, "note": "nothing to draw"},
        {},
    ]
    progress = read_curves(lines, "accuracy", True)
    assert progress.steps.tolist() == [1, 2]
    assert progress.losses.tolist() == [2.5, 2.0]
    assert progress.lr_scales.tolist() == [0.5, 1.0]
    assert progress.skipped_steps == 1
    assert progress.validation("accuracy") == ([2], [0.7])
    assert progress.validation("bleu") == ([], [])


def test_the_later_of_two_lines_about_a_step_counts() -> None:
    lines = [{"step": 5, "loss": 9.0}, {"step": 3, "loss": 4.0}, {"step": 5, "loss": 1.0}]
    progress = read_curves(lines, "loss", False)
    assert progress.steps.tolist() == [3, 5]
    assert progress.losses.tolist() == [4.0, 1.0]


def test_losses_that_are_no_finite_numbers_are_not_numbers() -> None:
    losses = [1.0, math.nan, math.inf, -math.inf, None, "2"]
    lines = [{"step": step, "loss": loss} for step, loss in enumerate(losses)]
    read = read_curves(lines, "loss", False).losses
    assert np.isnan(read).tolist() == [False, True, True, True, True, True]


def test_the_best_evaluation_is_the_last_the_run_called_so() -> None:
    lines = [_evaluation(1, True, bleu=3.0), _evaluation(2, True, bleu=5.0), _evaluation(3, bleu=9)]
    assert read_curves(lines, "bleu", True).best.step == 2


def test_without_a_word_from_the_run_the_best_metric_decides() -> None:
    lines = [_evaluation(1, loss=3.0), _evaluation(2, loss=2.0), _evaluation(3, loss=math.nan)]
    assert read_curves(lines, "loss", False).best.step == 2
    assert read_curves(lines, "loss", True).best.step == 1
    assert read_curves(lines, "bleu", True).best is None


def test_smoothing_keeps_a_constant_and_skips_gaps() -> None:
    values = np.full(401, 3.0)
    values[[0, 7, 200]] = np.nan
    assert np.allclose(smooth(values), 3.0)
    assert np.isnan(smooth(np.full(3, np.nan))).all()


def test_smoothing_takes_noise_away_but_not_a_steep_first_fall() -> None:
    noise = np.random.default_rng(2).standard_normal(2003)
    assert smooth(noise)[200:].std() < 0.2
    fall = 10 * np.exp(-np.arange(2003) / 20)
    assert smooth(fall)[0] > 8


def test_thinning_keeps_the_ends_and_every_spike() -> None:
    values = np.zeros(100_003)
    values[[777, 50_000]] = 5, -5
    kept = thin(values, 500)
    assert len(kept) <= 500
    assert {0, 777, 50_000, 100_002} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()


def test_thinning_leaves_short_runs_and_shows_long_gaps() -> None:
    assert thin(np.zeros(7), 500).tolist() == [0, 1, 2, 3, 4, 5, 6]
    values = np.zeros(10_007)
    values[3_000:6_000] = np.nan
    assert np.isnan(values[thin(values, 100)]).sum() > 10
