"""What a finished run tells people: the facts of its report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.report import Story
from qkv.train.job.job import Job
from qkv.train.lesson import Judged, Lesson
from qkv.train.recipe import Recipe

USE = {
    "language": ("qkv evaluate {0} other.txt",),
    "masked": ("qkv evaluate {0} other.txt", "qkv train classify texts.csv --from {0} -o labels"),
    "classify": ("qkv evaluate {0} test.csv",),
    "translate": ("qkv evaluate {0} test.tsv",),
    "embed": ("qkv evaluate {0} test.csv",),
}


def story(
    place: Path, job: Job[Any], recipe: Recipe, lesson: Lesson, judged: Judged, lines: Sequence[str]
) -> Story:
    """All of it; `lines` are those of metrics.jsonl."""
    return Story(
        title=job.title,
        job=job.name,
        metric=lesson.metric.name,
        higher_is_better=lesson.metric.higher_is_better,
        lines=[json.loads(line) for line in lines],
        data=lesson.facts,
        remarks=lesson.remarks,
        scores=judged.scores,
        baseline=(judged.baseline_is, judged.baseline) if judged.baseline else None,
        labels=judged.labels,
        confusion=judged.confusion,
        samples=judged.samples,
        use=tuple(line.format(place) for line in USE[job.name]),
        recipe=recipe.toml(),
    )
