"""Whether texts with the same label lie together: k-means, and how its clusters match labels."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import DataError


@dataclass(frozen=True)
class ClusterScores:
    """All are 1 if the clusters are the labels. By chance, only `adjusted_rand` is near 0."""

    v_measure: float
    adjusted_rand: float
    accuracy: float  # each cluster stands for one label, chosen so that most texts fit


def score_clusters(vectors: Any, labels: Sequence[str], seed: int) -> ClusterScores:
    """How well k-means finds the labels in the vectors, with as many clusters as labels.

    vectors (n, D): a numpy array or a sparse matrix, as from `bag_of_words_vectors`. The same
    seed gives the same scores; different ones spread by several hundredths.
    """
    _check(vectors, labels)
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
    from sklearn.metrics import (  # type: ignore[import-untyped]
        adjusted_rand_score,
        v_measure_score,
    )

    names, truth = np.unique(np.asarray(labels, dtype=object), return_inverse=True)
    found = _clusters(vectors, len(names), seed)
    shared = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(shared, (truth, found), 1)
    label, cluster = linear_sum_assignment(shared, maximize=True)
    return ClusterScores(
        v_measure=float(v_measure_score(truth, found)),
        adjusted_rand=float(adjusted_rand_score(truth, found)),
        accuracy=float(shared[label, cluster].sum() / len(labels)),
    )


def bag_of_words_vectors(texts: Sequence[str]) -> Any:
    """TF-IDF of the words of each text, as a sparse matrix (n, D): the baseline's vectors.

    English function words are left out, they would otherwise be the clusters. A text without
    words is a row of zeros.
    """
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

    try:
        return TfidfVectorizer(stop_words="english").fit_transform(texts)
    except ValueError:  # scikit-learn's word for an empty vocabulary
        return csr_matrix((len(texts), 1), dtype=np.float64)


def _clusters(vectors: Any, count: int, seed: int) -> NDArray[np.int64]:
    """The number of each vector's cluster; fewer than `count` where too few vectors differ."""
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal vectors share a cluster
        found = KMeans(count, n_init=10, random_state=seed).fit_predict(vectors)
    return np.asarray(found, dtype=np.int64)


def _check(vectors: Any, labels: Sequence[str]) -> None:
    if vectors.ndim != 2 or vectors.shape[0] != len(labels):
        raise DataError(
            f"vectors of shape {vectors.shape} for {len(labels)} labels; "
            f"expected ({len(labels)}, D), a row for each label"
        )
    if len(set(labels)) < 2:
        listed = f'all have the label "{labels[0]}"' if labels else "there are none"
        raise DataError(f"{len(labels)} texts, {listed}; clusters need at least two labels")
    numbers = vectors if isinstance(vectors, np.ndarray) else vectors.data
    if not np.isfinite(numbers).all():
        raise DataError("some vectors hold numbers that are not finite; leave those texts out")
