"""Metrics of embeddings and translations: clustering, Spearman correlation, BLEU and chrF.

BLEU and chrF are those of sacrebleu; their signatures state exactly what was computed. The score of
copying the source, `score_translations(sources, references)`, is the baseline.
"""

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
        if labels:
            listed = f'all have the label "{labels[0]}"'
        else:
            listed = "there are none"
        raise DataError(f"{len(labels)} texts, {listed}; clusters need at least two labels")
    if isinstance(vectors, np.ndarray):
        numbers = vectors
    else:
        numbers = vectors.data
    if not np.isfinite(numbers).all():
        raise DataError("some vectors hold numbers that are not finite; leave those texts out")


def spearman(guessed: Sequence[float], truth: Sequence[float]) -> float:
    """1 if both order the pairs alike, -1 if the other way round, 0 if one says nothing.

    Equal values share the mean of their ranks. Guesses that are all equal order nothing and get
    0; a truth that is all equal cannot be used and is an error.
    """
    if len(guessed) != len(truth):
        raise DataError(f"{len(guessed)} guesses but {len(truth)} true scores; give one for each")
    if len(truth) < 2:
        raise DataError(f"{len(truth)} scored pairs; a rank correlation needs at least two")
    first, second = (_numbers(name, of) for name, of in (("guess", guessed), ("score", truth)))
    if np.all(second == second[0]):
        raise DataError(
            f"all {len(truth)} true scores are {second[0]:g}; "
            "a rank correlation needs at least two different ones"
        )
    if np.all(first == first[0]):
        return 0.0
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for the smallest; values that are equal share the mean of their ranks."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    means: NDArray[np.float64] = last - (sizes - 1) / 2
    return means[group]


def _numbers(name: str, values: Sequence[float]) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if np.isnan(numbers).any():
        at = int(np.isnan(numbers).argmax())
        raise DataError(f"{name} {at + 1} of {len(numbers)} is not a number; leave that pair out")
    return numbers


@dataclass(frozen=True)
class TranslationScores:
    """Both scores run from 0 to 100; a signature belongs beside each wherever it is quoted."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score_translations(guessed: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """The scores of all translations together, each against its one reference, case counting."""
    if len(guessed) != len(references):
        raise DataError(
            f"{len(guessed)} translations but {len(references)} references; give one for each"
        )
    if not guessed:
        raise DataError("no translations to score; give at least one with its reference")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    # force: captions without capitals and full stops are no reason for a warning on the screen.
    bleu = BLEU(tokenize="13a", lowercase=False, force=True)
    chrf = CHRF()
    streams = [list(references)]
    return TranslationScores(
        bleu=float(bleu.corpus_score(list(guessed), streams).score),
        chrf=float(chrf.corpus_score(list(guessed), streams).score),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )
