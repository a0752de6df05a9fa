"""What a training report says: its facts, its learning curves as arrays, and its sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# What people ask for first, where the metric that selects the best weights is another one.
HEADLINES = {"macro_f1": "accuracy"}

METRIC_NAMES = {
    "accuracy": "accuracy",
    "bleu": "BLEU",
    "chrf": "chrF",
    "f1": "F1",
    "macro_f1": "macro F1",
    "v_measure": "V-measure",
    "adjusted_rand": "adjusted Rand index",
    "spearman": "Spearman correlation",
}


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f'"{self.title}" has {len(self.columns)} columns, not {len(row)}')


@dataclass(frozen=True)
class TrainingReport:
    """One training run: the model, its data, its curves, its scores, and how to use it."""

    title: str
    job: str
    metric: str  # the one that selects the best weights
    higher_is_better: bool
    log: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
    data: Sequence[tuple[str, str]]  # name and value
    remarks: Sequence[str]
    scores: Mapping[str, float]  # of the finished model on validation data
    baseline: tuple[str, Mapping[str, float]] | None  # what it is, and its scores
    labels: tuple[str, ...] = ()
    confusion: Sequence[Sequence[int]] = ()  # a row per true label; empty: not a classifier
    samples: Sequence[Table] = ()
    usage: Sequence[str] = ()  # commands and lines of Python
    recipe: str = ""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, by metric

    def __post_init__(self) -> None:
        sizes = {len(self.confusion), *(len(row) for row in self.confusion)}
        if self.confusion and sizes != {len(self.labels)}:
            raise ValueError(f"a confusion matrix of {len(self.labels)} labels, not {sizes}")


@dataclass(frozen=True)
class EvaluationPoint:
    """The validation scores after a step; scores that are not finite are left out."""

    step: int
    scores: Mapping[str, float]


@dataclass(frozen=True)
class LearningCurves:
    """Losses and learning rates step by step, NaN where a step has no finite one."""

    steps: Floats
    losses: Floats
    lr_scales: Floats  # fractions of the peak learning rate
    skipped_steps: int  # whose update was not finite
    evaluations: tuple[EvaluationPoint, ...]
    best: EvaluationPoint | None

    def validation(self, metric: str) -> tuple[list[int], list[float]]:
        """The steps at which the metric was measured, and its values."""
        points = [point for point in self.evaluations if metric in point.scores]
        steps = [point.step for point in points]
        values = [point.scores[metric] for point in points]
        return steps, values


def read_curves(
    log: Sequence[Mapping[str, Any]], metric: str, higher_is_better: bool
) -> LearningCurves:
    """The log as arrays; lines that are neither a step nor an evaluation are ignored.

    Of two lines about the same step the later one counts. The best evaluation is the last one the
    run marked as best, otherwise the one with the best metric.
    """
    steps: dict[int, Mapping[str, Any]] = {}
    validation: dict[int, Mapping[str, Any]] = {}
    for line in log:
        step = line.get("step")
        if isinstance(step, int) and isinstance(line.get("validation"), Mapping):
            validation[step] = line
        elif isinstance(step, int) and "loss" in line:
            steps[step] = line
    order = sorted(steps)
    evaluations = tuple(_evaluation(step, validation[step]) for step in sorted(validation))
    best = _best(evaluations, metric, higher_is_better)
    for point in evaluations:
        if validation[point.step].get("best") is True:
            best = point
    return LearningCurves(
        steps=np.array(order, dtype=np.float64),
        losses=_column(steps, order, "loss"),
        lr_scales=_column(steps, order, "lr_scale"),
        skipped_steps=sum(line.get("finite") is False for line in steps.values()),
        evaluations=evaluations,
        best=best,
    )


def smooth(values: Floats) -> Floats:
    """The mean of the finite values around each one; NaN where there are none.

    The window is short at the start, so that a steep first fall is not flattened, and grows to a
    twentieth of all values.
    """
    index = np.arange(len(values))
    largest = len(values) // 40
    radius = np.minimum(index + largest // 10, largest)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    low = np.maximum(index - radius, 0)
    high = np.minimum(index + radius + 1, len(values))
    count = counts[high] - counts[low]
    means = (sums[high] - sums[low]) / np.maximum(count, 1)
    return np.where(count > 0, means, np.nan)


def thin(values: Floats, max_points: int) -> NDArray[np.int64]:
    """The indices of at most `max_points` values that look like all: each span's extremes."""
    if len(values) <= max_points:
        return np.arange(len(values))
    indices = {0, len(values) - 1}
    for span in np.array_split(np.arange(len(values)), max_points // 2 - 1):
        if np.isfinite(values[span]).any():
            indices.add(int(span[np.nanargmin(values[span])]))
            indices.add(int(span[np.nanargmax(values[span])]))
        else:
            indices.add(int(span[0]))  # so that a long gap stays a gap
    return np.array(sorted(indices), dtype=np.int64)


def _column(steps: Mapping[int, Mapping[str, Any]], order: Sequence[int], key: str) -> Floats:
    return np.array([_finite(steps[step].get(key)) for step in order], dtype=np.float64)


def _evaluation(step: int, line: Mapping[str, Any]) -> EvaluationPoint:
    scores = {}
    for metric, value in line["validation"].items():
        number = _finite(value)
        if not math.isnan(number):
            scores[metric] = number
    return EvaluationPoint(step, scores)


def _best(
    evaluations: Sequence[EvaluationPoint], metric: str, higher_is_better: bool
) -> EvaluationPoint | None:
    points = [point for point in evaluations if metric in point.scores]
    if not points:
        return None
    if higher_is_better:
        return max(points, key=lambda point: point.scores[metric])
    return min(points, key=lambda point: point.scores[metric])


def _finite(value: Any) -> float:
    """The number, or NaN for anything else; JSON holds null where a number was not finite."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return math.nan


def metric_name(metric: str) -> str:
    """The metric as people write it."""
    return METRIC_NAMES.get(metric, metric.replace("_", " "))


def format_score(score: float) -> str:
    """A score with as many digits as one reads: 0.913, 34.21, 1,234."""
    if math.isnan(score):
        return "not a number"
    if math.isinf(score):
        return "infinite"
    if score != 0 and abs(score) < 0.0005:
        return f"{score:.1e}"
    if abs(score) < 10:
        decimals = 3
    elif abs(score) < 1000:
        decimals = 2
    else:
        decimals = 0
    return f"{score:,.{decimals}f}".replace("-", "−")


def format_interval(interval: tuple[float, float]) -> str:
    """As in 0.830 to 0.879."""
    low, high = interval
    return f"{format_score(low)} to {format_score(high)}"


def headline(report: TrainingReport) -> str:
    """The metric that is named first."""
    metric = HEADLINES.get(report.metric, report.metric)
    if metric in report.scores:
        return metric
    return report.metric


def optimism(evaluations: int) -> str:
    """How often training looked at the validation split, and what that means for its scores."""
    if evaluations == 0:
        return ""
    if evaluations == 1:
        return "The validation split was evaluated once, at the end of training."
    return (
        f"Training evaluated the validation split {evaluations:,} times and kept the best weights, "
        "so these scores are slightly optimistic. For an unbiased score, evaluate on a test file "
        "that took no part in training."
    )


def verdict(report: TrainingReport) -> str:
    """Whether the model is better than its baseline, in one or two plain sentences."""
    key = headline(report)
    metric = metric_name(key)
    if key not in report.scores:
        return f"The finished model was not scored: no validation {metric} was measured."
    score = report.scores[key]
    sentence = f"On validation data the {metric} is {format_score(score)}"
    if key in report.intervals:
        sentence += f" (95 % interval {format_interval(report.intervals[key])})"
    if not math.isfinite(score):
        return f"{sentence}: the model cannot be used."
    baseline_name, baseline_scores = report.baseline or ("", {})
    baseline = baseline_scores.get(key, math.nan)
    if not math.isfinite(baseline):
        return f"{sentence}. There is no baseline to compare it with."
    direction = "higher" if report.higher_is_better else "lower"
    sentence += (
        f"; the baseline, {baseline_name}, has {format_score(baseline)} ({direction} is better)"
    )
    if format_score(score) == format_score(baseline):
        return f"The model did not beat its baseline: both are the same. {sentence}."
    if (score > baseline) != report.higher_is_better:
        return f"The model did not beat its baseline. {sentence}."
    return f"The model beats its baseline by {format_score(abs(score - baseline))}. {sentence}."


def describe_curves(curves: LearningCurves, metric: str) -> str:
    """The curves in words, with their numbers, for whoever cannot see them."""
    sentences = [_describe_training(curves)]
    for each in dict.fromkeys(("loss", metric)):
        steps, values = curves.validation(each)
        if not values:
            continue
        sentence = (
            f"Validation {metric_name(each)} was {format_score(values[0])} at step {steps[0]:,}"
        )
        if len(values) > 1:
            sentence += f" and {format_score(values[-1])} at step {steps[-1]:,}"
        sentences.append(f"{sentence}.")
    best = curves.best
    if best is not None and metric in best.scores:
        sentences.append(
            f"The best validation {metric_name(metric)}, {format_score(best.scores[metric])}, "
            f"came at step {best.step:,}."
        )
    not_finite = int(np.isnan(curves.losses).sum())
    if not_finite:
        sentences.append(f"{_count_steps(not_finite)} had no finite loss.")
    if curves.skipped_steps:
        sentences.append(f"{_count_steps(curves.skipped_steps)} did not change the model.")
    return " ".join(sentences)


def _describe_training(curves: LearningCurves) -> str:
    if len(curves.steps) == 0:
        return "No training steps were logged."
    line = smooth(curves.losses)
    finite = np.flatnonzero(np.isfinite(line))
    if len(finite) == 0:
        return "The training loss was never finite."
    first = finite[0]
    last = finite[-1]
    start = f"{format_score(line[first])} at step {curves.steps[first]:,.0f}"
    if first == last:
        return f"Training loss was {start}."
    return (
        f"Training loss went from {start} to {format_score(line[last])} "
        f"at step {curves.steps[last]:,.0f}."
    )


def _count_steps(count: int) -> str:
    if count == 1:
        return "1 step"
    return f"{count:,} steps"
