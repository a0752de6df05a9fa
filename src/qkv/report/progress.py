"""What the lines of metrics.jsonl say about a run, in order of its steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """The held-out scores after a step; those that are not finite are left out."""

    step: int
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Progress:
    """Steps with their losses and learning-rate shares, NaN where a step has no finite one."""

    steps: Numbers
    losses: Numbers
    rates: Numbers
    refused: int  # steps whose update was not taken
    evaluations: tuple[Evaluation, ...]
    best: Evaluation | None

    def held_out(self, metric: str) -> tuple[list[int], list[float]]:
        """The steps at which the metric was measured, and its values."""
        points = [(e.step, e.scores[metric]) for e in self.evaluations if metric in e.scores]
        return [step for step, _ in points], [value for _, value in points]


def read_progress(
    lines: Sequence[Mapping[str, Any]], metric: str, higher_is_better: bool
) -> Progress:
    """The run as arrays; lines that are neither a step nor an evaluation are ignored.

    Of two lines about the same step the later one counts. The best evaluation is the last that
    the run itself called so, otherwise the one with the best metric.
    """
    steps: dict[int, Mapping[str, Any]] = {}
    held_out: dict[int, Mapping[str, Any]] = {}
    for line in lines:
        step = line.get("step")
        if isinstance(step, int) and isinstance(line.get("held_out"), Mapping):
            held_out[step] = line
        elif isinstance(step, int) and "loss" in line:
            steps[step] = line
    order = sorted(steps)
    evaluations = tuple(_evaluation(step, held_out[step]) for step in sorted(held_out))
    called_best = [e for e in evaluations if held_out[e.step].get("best") is True]
    return Progress(
        steps=np.array(order, dtype=np.float64),
        losses=np.array([_finite(steps[step]["loss"]) for step in order], dtype=np.float64),
        rates=np.array([_finite(steps[step].get("rate")) for step in order], dtype=np.float64),
        refused=sum(line.get("taken") is False for line in steps.values()),
        evaluations=evaluations,
        best=called_best[-1] if called_best else _best(evaluations, metric, higher_is_better),
    )


def smoothed(values: Numbers) -> Numbers:
    """The mean of the finite values around each one; NaN where there are none.

    The span is short at the start, so that a steep first fall is not flattened, and
    soon a twentieth of all values.
    """
    at, half = np.arange(len(values)), len(values) // 40
    reach = np.minimum(at + half // 10, half)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    count = counts[high] - counts[low]
    means = (sums[high] - sums[low]) / np.maximum(count, 1)
    return np.where(count > 0, means, np.nan)


def thinned(values: Numbers, most: int) -> NDArray[np.int64]:
    """The places of at most `most` values that look like all of them: each span's extremes."""
    if len(values) <= most:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    for span in np.array_split(np.arange(len(values)), most // 2 - 1):
        if np.isfinite(values[span]).any():
            kept |= {int(span[np.nanargmin(values[span])]), int(span[np.nanargmax(values[span])])}
        else:
            kept.add(int(span[0]))  # so that a long gap stays a gap
    return np.array(sorted(kept), dtype=np.int64)


def _evaluation(step: int, line: Mapping[str, Any]) -> Evaluation:
    scores = {name: _finite(value) for name, value in line["held_out"].items()}
    return Evaluation(step, {name: v for name, v in scores.items() if not math.isnan(v)})


def _best(
    evaluations: Sequence[Evaluation], metric: str, higher_is_better: bool
) -> Evaluation | None:
    measured = [e for e in evaluations if metric in e.scores]
    sign = -1 if higher_is_better else 1
    return min(measured, key=lambda e: sign * e.scores[metric], default=None)


def _finite(value: Any) -> float:
    """The number, or NaN for anything else; JSON may hold null where a number was none."""
    number = float(value) if isinstance(value, int | float) else math.nan
    return number if math.isfinite(number) else math.nan
