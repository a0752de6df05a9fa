"""All that a report tells, gathered by whoever ran the training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
