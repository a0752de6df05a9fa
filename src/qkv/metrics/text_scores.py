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
    accuracy: float  # under the best one-to-one matching of clusters and labels


def score_clusters(vectors: Any, labels: Sequence[str], seed: int) -> ClusterScores:
    """How well k-means finds the labels in the vectors, with as many clusters as labels.

    vectors (n, D): a numpy array or a sparse matrix, as from `bag_of_words_vectors`. The same
    seed gives the same scores; different seeds vary by several hundredths.
    """
    _check(vectors, labels)
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
    from sklearn.metrics import (  # type: ignore[import-untyped]
        adjusted_rand_score,
        v_measure_score,
    )

    names, truth = np.unique(np.asarray(labels, dtype=object), return_inverse=True)
    clusters = _clusters(vectors, len(names), seed)
    contingency = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(contingency, (truth, clusters), 1)
    # The Hungarian algorithm: cluster numbers are arbitrary, so accuracy needs a matching first.
    label, cluster = linear_sum_assignment(contingency, maximize=True)
    return ClusterScores(
        v_measure=float(v_measure_score(truth, clusters)),
        adjusted_rand=float(adjusted_rand_score(truth, clusters)),
        accuracy=float(contingency[label, cluster].sum() / len(labels)),
    )


def bag_of_words_vectors(texts: Sequence[str]) -> Any:
    """TF-IDF of the words of each text, as a sparse matrix (n, D): the baseline's vectors.

    English stop words are removed, since they would otherwise dominate the clusters. A text
    without words is a row of zeros.
    """
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

    try:
        return TfidfVectorizer(stop_words="english").fit_transform(texts)
    except ValueError:  # raised by scikit-learn for an empty vocabulary
        return csr_matrix((len(texts), 1), dtype=np.float64)


class LatentSemanticAnalysis:
    """TF-IDF of words, reduced to their main directions (Deerwester et al. 1990).

    A strong baseline for texts about topics, learned from the texts alone: words that occur with
    the same words get similar vectors. Same texts and seed, same vectors, bit for bit.
    """

    def __init__(self, texts: Sequence[str], components: int, seed: int = 0) -> None:
        from sklearn.decomposition import TruncatedSVD  # type: ignore[import-untyped]
        from sklearn.feature_extraction.text import TfidfVectorizer
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        self.vectorizer = TfidfVectorizer(stop_words="english")
        try:
            counts = self.vectorizer.fit_transform(texts)
        except ValueError:  # raised by scikit-learn for an empty vocabulary
            raise DataError(
                "the texts hold no words but stop words to learn vectors from"
            ) from None
        # The solver needs fewer components than the matrix has rows and columns.
        self.components = max(1, min(components, min(counts.shape) - 1))
        self.svd = TruncatedSVD(self.components, random_state=seed)
        if min(counts.shape) == 1:
            raise DataError("the texts hold a single word; vectors cannot be learned from that")
        with threadpool_limits(1):  # so that sums are added in the same order each time
            self.svd.fit(counts)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A unit vector for each text, (n, components); zeros for one without known words."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            vectors = self.svd.transform(self.vectorizer.transform(texts))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        # Rounding leaves a direction where there is none.
        known = lengths > 1e-9
        return np.asarray(np.where(known, vectors / np.where(known, lengths, 1), 0), np.float32)


def _clusters(vectors: Any, count: int, seed: int) -> NDArray[np.int64]:
    """The cluster index of each vector, (n,); fewer than `count` clusters if many are equal."""
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal vectors share a cluster
        clusters = KMeans(count, n_init=10, random_state=seed).fit_predict(vectors)
    return np.asarray(clusters, dtype=np.int64)


def _check(vectors: Any, labels: Sequence[str]) -> None:
    if vectors.ndim != 2 or vectors.shape[0] != len(labels):
        raise DataError(
            f"vectors of shape {vectors.shape} for {len(labels)} labels; "
            f"expected ({len(labels)}, D), a row for each label"
        )
    if len(set(labels)) < 2:
        if labels:
            reason = f'all have the label "{labels[0]}"'
        else:
            reason = "there are none"
        raise DataError(f"{len(labels)} texts, {reason}; clusters need at least two labels")
    if isinstance(vectors, np.ndarray):
        values = vectors
    else:
        values = vectors.data  # the stored entries of a sparse matrix
    if not np.isfinite(values).all():
        raise DataError("some vectors hold numbers that are not finite; leave those texts out")


def score_halves(first: NDArray[np.float32], second: NDArray[np.float32]) -> float:
    """How often the second half of a text is nearer to its first half than that of another text.

    first, second (n, D): unit vectors of the halves of n texts. 0.5 is chance, 1 is always; ties
    count half. It needs no labels: what belongs together is taken from the texts.
    """
    if len(first) < 2:
        raise DataError(f"{len(first)} texts to split in halves; comparing them needs at least two")
    cosines = first @ second.T
    own = cosines.diagonal()[:, None]
    wins = (own > cosines).sum(axis=1) + ((own == cosines).sum(axis=1) - 1) / 2
    return float(np.mean(wins) / (len(first) - 1))


def neighbour_overlap(
    vectors: NDArray[np.float32], others: NDArray[np.float32], neighbours: int = 10
) -> float:
    """The fraction of each text's nearest neighbours, (n, D), that it has by other vectors too.

    A single text has no neighbours to differ in: 1.
    """
    count = min(neighbours, len(vectors) - 1)
    if count < 1:
        return 1.0
    shared = 0
    nearest = [_nearest(each, count) for each in (vectors, others)]
    for one, other in zip(*nearest, strict=True):
        shared += len(np.intersect1d(one, other))
    return shared / (count * len(vectors))


def _nearest(vectors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    return np.asarray(np.argsort(-cosines, axis=1, kind="stable")[:, :count], np.int64)


def spearman(guessed: Sequence[float], truth: Sequence[float]) -> float:
    """1 if both order the pairs alike, -1 if the other way round, 0 if one says nothing.

    Equal values share the mean of their ranks. If all predictions are equal the result is 0; if
    all true scores are equal the correlation is undefined, which raises DataError.
    """
    if len(guessed) != len(truth):
        raise DataError(f"{len(guessed)} guesses but {len(truth)} true scores; give one for each")
    if len(truth) < 2:
        raise DataError(f"{len(truth)} scored pairs; a rank correlation needs at least two")
    predictions = _numbers("guess", guessed)
    targets = _numbers("score", truth)
    if np.all(targets == targets[0]):
        raise DataError(
            f"all {len(truth)} true scores are {targets[0]:g}; "
            "a rank correlation needs at least two different ones"
        )
    if np.all(predictions == predictions[0]):
        return 0.0
    return float(np.corrcoef(_ranks(predictions), _ranks(targets))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each value, 1 for the smallest; equal values share the mean of their ranks."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(sizes)
    mean_ranks: NDArray[np.float64] = last_ranks - (sizes - 1) / 2
    return mean_ranks[group]


def _numbers(name: str, values: Sequence[float]) -> NDArray[np.float64]:
    """The values as float64; raises DataError for the first NaN."""
    numbers = np.asarray(values, dtype=np.float64)
    if np.isnan(numbers).any():
        index = int(np.isnan(numbers).argmax())
        raise DataError(
            f"{name} {index + 1} of {len(numbers)} is not a number; leave that pair out"
        )
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

    # force=True silences sacrebleu's warning about text that looks tokenized.
    bleu = BLEU(tokenize="13a", lowercase=False, force=True)
    chrf = CHRF()
    streams = [list(references)]
    return TranslationScores(
        bleu=float(bleu.corpus_score(list(guessed), streams).score),
        chrf=float(chrf.corpus_score(list(guessed), streams).score),
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """The chrF of each translation against its one reference, from 0 to 100.

    Their mean is not the chrF of all together, which counts long sentences more.
    """
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF()
    pairs = zip(translations, references, strict=True)
    return [float(chrf.sentence_score(text, [reference]).score) for text, reference in pairs]
