"""All that a report tells, gathered by whoever ran the training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# FOLDED report/progress: What the lines of metrics.jsonl say about a run, in order of its
#   steps.
# FOLDED report/wording: What the numbers of a run say in words: how good, compared with what,
#   and how it got there.


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
class Story:
    """One training run: what was made, of what, how it went, how good it is, how to use it."""

    title: str
    job: str
    metric: str  # the watched one
    higher_is_better: bool
    lines: Sequence[Mapping[str, Any]]  # of metrics.jsonl
    data: Sequence[tuple[str, str]]  # name and value
    remarks: Sequence[str]
    scores: Mapping[str, float]  # of the finished model on held-out data
    baseline: tuple[str, Mapping[str, float]] | None  # what it is, and its scores
    labels: tuple[str, ...] = ()
    confusion: Sequence[Sequence[int]] = ()  # rows are the truth; empty: no labels to confuse
    samples: Sequence[Table] = ()
    use: Sequence[str] = ()  # commands and lines of Python
    recipe: str = ""

    def __post_init__(self) -> None:
        sizes = {len(self.confusion), *(len(row) for row in self.confusion)}
        if self.confusion and sizes != {len(self.labels)}:
            raise ValueError(f"a confusion matrix of {len(self.labels)} labels, not {sizes}")


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
        if isinstance(step, int) and isinstance(line.get("validation"), Mapping):
            held_out[step] = line
        elif isinstance(step, int) and "loss" in line:
            steps[step] = line
    order = sorted(steps)
    evaluations = tuple(_evaluation(step, held_out[step]) for step in sorted(held_out))
    called_best = [e for e in evaluations if held_out[e.step].get("best") is True]
    return Progress(
        steps=np.array(order, dtype=np.float64),
        losses=np.array([_finite(steps[step]["loss"]) for step in order], dtype=np.float64),
        rates=np.array([_finite(steps[step].get("lr_scale")) for step in order], dtype=np.float64),
        refused=sum(line.get("finite") is False for line in steps.values()),
        evaluations=evaluations,
        best=called_best[-1] if called_best else _best(evaluations, metric, higher_is_better),
    )


def smoothed(values: Numbers) -> Numbers:
    """The mean of the finite values around each one; NaN where there are none.

    The span is short at the start, so that a steep first fall is not flattened, and
    soon a twentieth of all values.
    """
    at = np.arange(len(values))
    half = len(values) // 40
    reach = np.minimum(at + half // 10, half)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    low = np.maximum(at - reach, 0)
    high = np.minimum(at + reach + 1, len(values))
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
    scores = {name: _finite(value) for name, value in line["validation"].items()}
    return Evaluation(step, {name: v for name, v in scores.items() if not math.isnan(v)})


def _best(
    evaluations: Sequence[Evaluation], metric: str, higher_is_better: bool
) -> Evaluation | None:
    measured = [e for e in evaluations if metric in e.scores]
    sign = -1 if higher_is_better else 1
    return min(measured, key=lambda e: sign * e.scores[metric], default=None)


def _finite(value: Any) -> float:
    """The number, or NaN for anything else; JSON may hold null where a number was none."""
    if isinstance(value, int | float):
        number = float(value)
    else:
        number = math.nan
    if math.isfinite(number):
        return number
    return math.nan


NAMES = {
    "accuracy": "accuracy",
    "bleu": "BLEU",
    "chrf": "chrF",
    "f1": "F1",
    "macro_f1": "macro F1",
    "v_measure": "V-measure",
    "adjusted_rand": "adjusted Rand index",
    "spearman": "Spearman correlation",
}


def name(metric: str) -> str:
    """The metric as people write it."""
    return NAMES.get(metric, metric.replace("_", " "))


def figure(value: float) -> str:
    """A score with as many digits as one reads: 0.913, 34.21, 1,234."""
    if not math.isfinite(value):
        if math.isnan(value):
            return "not a number"
        return "infinite"
    if value != 0 and abs(value) < 0.0005:
        return f"{value:.1e}"
    if abs(value) < 10:
        decimals = 3
    elif abs(value) < 1000:
        decimals = 2
    else:
        decimals = 0
    return f"{value:,.{decimals}f}".replace("-", "−")


def verdict(story: Story) -> str:
    """Whether the model is better than its baseline, in one or two plain sentences."""
    metric = name(story.metric)
    if story.metric not in story.scores:
        return f"The finished model was not scored: no held-out {metric} was measured."
    ours = story.scores[story.metric]
    reaches = f"On held-out data the {metric} is {figure(ours)}"
    what, theirs = story.baseline or ("", {})
    if not math.isfinite(ours):
        return f"{reaches}: the model cannot be used."
    if not math.isfinite(theirs.get(story.metric, math.nan)):
        return f"{reaches}. There is no baseline to compare it with."
    baseline = theirs[story.metric]
    if story.higher_is_better:
        direction = "higher"
    else:
        direction = "lower"
    beside = f"{reaches}; the baseline, {what}, has {figure(baseline)} ({direction} is better)"
    if figure(ours) == figure(baseline):
        return f"The model did not beat its baseline: both are the same. {beside}."
    if (ours > baseline) != story.higher_is_better:
        return f"The model did not beat its baseline. {beside}."
    return f"The model beats its baseline by {figure(abs(ours - baseline))}. {beside}."


def course(progress: Progress, metric: str) -> str:
    """The curves in words, with their numbers, for whoever cannot see them."""
    sentences = [_training(progress)]
    for each in dict.fromkeys(("loss", metric)):
        steps, values = progress.held_out(each)
        if values:
            sentences.append(
                f"Held-out {name(each)} was {figure(values[0])} at step {steps[0]:,} and "
                f"{figure(values[-1])} at step {steps[-1]:,}."
                if len(values) > 1
                else f"Held-out {name(each)} was {figure(values[0])} at step {steps[0]:,}."
            )
    best = progress.best
    if best is not None and metric in best.scores:
        sentences.append(
            f"The best held-out {name(metric)}, {figure(best.scores[metric])}, "
            f"came at step {best.step:,}."
        )
    broken = int(np.isnan(progress.losses).sum())
    if broken:
        sentences.append(f"{_steps(broken)} had no finite loss.")
    if progress.refused:
        sentences.append(f"{_steps(progress.refused)} did not change the model.")
    return " ".join(sentences)


def _training(progress: Progress) -> str:
    line = smoothed(progress.losses)
    shown = np.flatnonzero(np.isfinite(line))
    if len(progress.steps) == 0:
        return "No training steps were logged."
    if len(shown) == 0:
        return "The training loss was never finite."
    first = shown[0]
    last = shown[-1]
    start = f"{figure(line[first])} at step {progress.steps[first]:,.0f}"
    if first == last:
        return f"Training loss was {start}."
    return (
        f"Training loss went from {start} to {figure(line[last])} "
        f"at step {progress.steps[last]:,.0f}."
    )


def _steps(count: int) -> str:
    if count == 1:
        return "1 step"
    return f"{count:,} steps"
