"""Which examples an embedding model gets wrong: each with its nearest neighbour, worst first."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.training.tasks.embed import RelatedTexts, Supervision
from qkv.training.tasks.task import Predictions

NEIGHBOUR_ROWS = 1024  # cosines of so many queries are held at a time


def rank_examples(
    supervision: Supervision, examples: Sequence[RelatedTexts], vectors: Any
) -> Predictions:
    """Every example with what its vector is closest to; the most confident mistakes first.

    vectors (N, D), or (2N, D) if an example has two texts: all first ones, then all second ones.
    They have unit length. The scores in the result are those of training, rescaled to 0…1.
    """
    match supervision:
        case "scores":
            return _rank_scores(examples, vectors)
        case "labels":
            return _rank_labels(examples, vectors)
    return _rank_pairs(examples, vectors)


def _rank_labels(examples: Sequence[RelatedTexts], vectors: Any) -> Predictions:
    """The nearest other text of each, which should have the same label."""
    nearest, cosines = nearest_rows(vectors, vectors, exclude_self=True)
    rows = []
    for example, index, cosine in zip(examples, nearest, cosines, strict=True):
        other = examples[index]
        correct = other.label == example.label
        rows.append(
            (example.first, str(example.label), other.first, str(other.label), cosine, correct)
        )
    columns = ("text", "label", "nearest_text", "nearest_label", "cosine", "correct")
    return _mistakes_first("Nearest texts with another label", columns, rows)


def _rank_pairs(examples: Sequence[RelatedTexts], vectors: Any) -> Predictions:
    """The second text nearest to each first one, which should be its own."""
    count = len(examples)
    nearest, cosines = nearest_rows(vectors[:count], vectors[count:])
    rows = []
    for i, (example, index, cosine) in enumerate(zip(examples, nearest, cosines, strict=True)):
        own = float(vectors[i] @ vectors[count + i])
        row = (example.first, example.second, examples[index].second, cosine, own, index == i)
        rows.append(row)
    columns = ("text", "positive", "nearest", "cosine", "positive_cosine", "correct")
    return _mistakes_first("Texts nearest to another positive", columns, rows)


def _mistakes_first(title: str, columns: tuple[str, ...], rows: list[Any]) -> Predictions:
    """The last column tells what is right; `cosine` is how sure the vectors are of it."""
    sure = columns.index("cosine")
    mistakes = sorted((row for row in rows if not row[-1]), key=lambda row: -row[sure])
    right = sorted((row for row in rows if row[-1]), key=lambda row: row[sure])
    return Predictions(title, columns, mistakes + right, columns[:-1], len(mistakes))


def _rank_scores(examples: Sequence[RelatedTexts], vectors: Any) -> Predictions:
    """Each pair's cosine; those whose rank differs most from the rank of their score first."""
    count = len(examples)
    cosines = (vectors[:count] * vectors[count:]).sum(axis=1)
    scores = np.array([0.0 if e.score is None else e.score for e in examples])
    difference = np.abs(_ranks(cosines) - _ranks(scores)) / max(1, count - 1)
    rows = []
    for i in np.argsort(-difference, kind="stable").tolist():
        e = examples[i]
        row = (e.first, e.second, float(scores[i]), float(cosines[i]), float(difference[i]))
        rows.append(row)
    columns = ("text", "other_text", "score", "cosine", "rank_difference")
    return Predictions("Pairs ranked most wrongly", columns, rows, columns)


def _ranks(values: NDArray[Any]) -> NDArray[Any]:
    """The rank of each value from 0; equal values share the mean of theirs."""
    from scipy.stats import rankdata  # type: ignore[import-untyped]

    return np.asarray(rankdata(values)) - 1


def nearest_rows(
    queries: Any, vectors: Any, exclude_self: bool = False
) -> tuple[list[int], list[float]]:
    """The index of the vector with the largest cosine to each query, and that cosine.

    exclude_self: queries and vectors are the same, and none is its own neighbour.
    """
    indices: list[int] = []
    cosines: list[float] = []
    for start in range(0, len(queries), NEIGHBOUR_ROWS):
        block = queries[start : start + NEIGHBOUR_ROWS] @ vectors.T
        rows = np.arange(len(block))
        if exclude_self:
            block[rows, start + rows] = -np.inf
        best = block.argmax(axis=1)
        indices += best.tolist()
        cosines += block[rows, best].tolist()
    return indices, cosines
