"""From texts and their vectors to named clusters."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from qkv.engine.cluster.centres import Labels, Vectors, find_centres, nearest, unit
from qkv.engine.cluster.clustering import Clustering
from qkv.engine.cluster.density import dense_labels
from qkv.engine.cluster.describe import described
from qkv.engine.cluster.stability import Choice, Tried, choose_k
from qkv.errors import DataError, UsageError, unknown

Method = Literal["kmeans", "hdbscan"]
METHODS: tuple[Method, ...] = get_args(Method)
FEWEST = 4  # different texts among which a number of clusters can be looked for
ALIKE = 1e-6  # vectors that differ by less than this are the same


def cluster(
    texts: Sequence[str],
    vectors: ArrayLike,
    *,
    k: int | None = None,
    method: Method = "kmeans",
    seed: int = 0,
    tried: Tried = lambda k, stability: None,
) -> Clustering:
    """Groups of texts whose vectors (n, D) point the same way; the same seed, the same groups.

    k-means makes k of them, or as many as two samples agree on; `tried` is told the stability of
    each number that was tried. HDBSCAN finds their number itself and leaves outliers over.
    """
    expect_possible(texts, k, method)
    given = _checked(texts, vectors)
    choice = Choice(k)
    if np.abs(given - given[0]).max() < ALIKE:
        said = "all vectors are the same, so there is one cluster" if len(texts) > 1 else ""
        labels, choice = np.zeros(len(texts), np.int64), Choice(1, {}, said)
    elif method == "hdbscan":
        labels = dense_labels(given, seed)
    else:
        choice = _chosen(texts, given, seed, tried) if k is None else choice
        labels = _divided(given, choice, seed)
    return described(texts, given, labels, method, choice)


def expect_possible(texts: Sequence[str], k: int | None, method: str) -> None:
    """Refuse a number of clusters that cannot be, before any work is done."""
    if method not in METHODS:
        raise UsageError(unknown("method", method, METHODS))
    if not len(texts):
        raise DataError("there are no texts to cluster; give at least one")
    if k is None:
        return
    if method == "hdbscan":
        raise UsageError(f"hdbscan finds the number of clusters itself; leave k={k} out")
    different = len(set(texts))
    if not 1 <= k <= different:
        raise UsageError(
            f"k={k} clusters cannot be made of {len(texts):,} texts, {different:,} of them "
            f"different; ask for 1 to {different:,}"
        )


def _divided(vectors: Vectors, choice: Choice, seed: int) -> Labels:
    assert choice.k is not None
    return nearest(vectors, find_centres(vectors, choice.k, seed))[0]


def _chosen(texts: Sequence[str], vectors: Vectors, seed: int, tried: Tried) -> Choice:
    """How many clusters the different texts have: one that is repeated says nothing new."""
    first = {text: number for number, text in reversed(list(enumerate(texts)))}
    if len(first) < FEWEST:
        said = f"{len(first)} different texts are too few to look for groups in; say how many: -k"
        return Choice(1, {}, said)
    return choose_k(vectors[sorted(first.values())], seed, tried)


def _checked(texts: Sequence[str], vectors: ArrayLike) -> Vectors:
    """The vectors at length 1."""
    given = np.asarray(vectors, np.float32)
    if given.ndim != 2 or len(given) != len(texts) or not given.shape[1]:
        raise DataError(
            f"vectors of shape {given.shape} for {len(texts)} texts; expected ({len(texts)}, D), "
            "a row for each text"
        )
    if not np.isfinite(given).all():
        at = int(np.flatnonzero(~np.isfinite(given).all(axis=1))[0])
        raise DataError(f"the vector of text {at + 1} holds numbers that are not finite")
    return unit(given)
