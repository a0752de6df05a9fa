"""What the numbers of a run say in words: how good, compared with what, and how it got there."""

import math

import numpy as np

from qkv.report.progress import Progress, smoothed
from qkv.report.story import Story

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
        return "not a number" if math.isnan(value) else "infinite"
    if value != 0 and abs(value) < 0.0005:
        return f"{value:.1e}"
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0
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
    direction = "higher" if story.higher_is_better else "lower"
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
    first, last = shown[0], shown[-1]
    start = f"{figure(line[first])} at step {progress.steps[first]:,.0f}"
    if first == last:
        return f"Training loss was {start}."
    return (
        f"Training loss went from {start} to {figure(line[last])} "
        f"at step {progress.steps[last]:,.0f}."
    )


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count:,} steps"
