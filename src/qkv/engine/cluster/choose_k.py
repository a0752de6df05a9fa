"""The number of clusters: where clusters are most clearly separated, compared with chance.

Every candidate k over the whole range is tried. The vectors are clustered, and the mean silhouette
(Rousseeuw 1987) measures how much nearer a vector is to its own cluster than to the next one. The
same is done with vectors of the same mean and covariance that have no clusters, a Gaussian, because
even there k-means reaches some silhouette, and more of it at some k than at others. As in the gap
statistic (Tibshirani, Walther and Hastie 2001), the difference of the two is compared, and the
smallest k that is about as good as the best is taken.

A silhouette can be computed for any vectors, so the chosen k is verified by something else, its
stability: two samples of the vectors are clustered separately, and every vector of both is assigned
to its nearest centroid, once with the centroids of each sample. The adjusted Rand index of the two
assignments is 1 if they are the same and 0 if they agree as by chance (Lange, Roth, Braun and
Buhmann 2004); the mean over several pairs, minus the standard deviation, is the stability.

Samples have a limited size, so the cost is about the same for ten thousand texts and for a
million; and vectors are reduced to the few directions that preserve most cosines.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qkv.engine.cluster.kmeans import (
    Labels,
    Vectors,
    fit_centroids,
    membership,
    nearest_centroids,
    normalize,
)

MAX_K = 100

MIN_CLUSTER_SIZE = 10  # texts per cluster, on average, at the largest candidate

GROWTH = 1.12  # ratio of successive candidates, which are at least 1 apart

# Silhouettes are means over NUM_RUNS samples of SAMPLE_SIZE, those of Gaussians over NUM_GAUSSIANS.
NUM_RUNS = 3
NUM_GAUSSIANS = 2
RUN_INITIALIZATIONS = 3

CLOSE = 0.97  # this fraction of the largest difference is about as good as the largest

# Stability is measured on NUM_PAIRS pairs of samples.
NUM_PAIRS = 6
INITIALIZATIONS = 5
SAMPLE_SIZE = 2_000
MIN_SAMPLE_SIZE = 200  # where half of the vectors are fewer, the two samples of a pair overlap

# Vectors are projected on COMPONENTS directions, estimated from PCA_SAMPLE_SIZE of them.
COMPONENTS = 64
PCA_SAMPLE_SIZE = 10_000

UNSTABLE = 0.3  # below this, two samples hardly agree on anything

MAX_ROUGH_K = 12  # tried for a rough division where there are no clear clusters


@dataclass(frozen=True)
class Candidate:
    """A number of clusters, and how clearly they are separated."""

    k: int
    silhouette: float  # mean over the vectors, from -1 to 1
    reference: float  # the same for vectors that have no clusters

    @property
    def difference(self) -> float:
        """How far the silhouette is above that of vectors without clusters."""
        return self.silhouette - self.reference

    def json(self) -> dict[str, object]:
        return {
            "k": self.k,
            "silhouette": round(self.silhouette, 4),
            "reference": round(self.reference, 4),
        }


OnCandidate = Callable[[Candidate], None]


@dataclass(frozen=True)
class KSelection:
    """The number of clusters, None where the method determines it, and why it was selected."""

    k: int | None
    candidates: tuple[Candidate, ...] = ()
    stability: float | None = None  # of the selected k
    warning: str = ""


def choose_k(
    vectors: Vectors, seed: int, on_candidate: OnCandidate = lambda candidate: None
) -> KSelection:
    """The smallest k about as well separated as the best; needs at least 4 vectors."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    reduced = _reduce(vectors, seed)
    samples = _samples(reduced, seed)
    gaussians = [_gaussian_like(reduced, seed + i) for i in range(NUM_GAUSSIANS)]
    candidates = []
    with threadpool_limits(1):  # the products are small: more threads wait for each other
        for k in candidate_numbers(len(vectors)):
            silhouette = _mean_silhouette(samples, k, seed)
            reference = _mean_silhouette(gaussians, k, seed)
            candidates.append(Candidate(k, silhouette, reference))
            on_candidate(candidates[-1])
        clearest = best_separated(candidates)
        agreement = stability(reduced, clearest, seed)
        if agreement >= UNSTABLE:
            return KSelection(clearest, tuple(candidates), agreement)
        return _rough_division(reduced, candidates, clearest, agreement, seed)


def _rough_division(
    vectors: Vectors, candidates: Sequence[Candidate], clearest: int, agreement: float, seed: int
) -> KSelection:
    """The most stable of the small numbers, with a warning: there are no clear clusters."""
    by_k = {clearest: agreement}
    for candidate in candidates:
        if candidate.k <= MAX_ROUGH_K:
            by_k[candidate.k] = stability(vectors, candidate.k, seed)
    best = max(by_k, key=lambda k: by_k[k])
    warning = (
        f"no number of clusters is stable: two samples of the texts agree by {by_k[best]:.2f} at "
        f"best (1 is fully, 0 as by chance), with {best} clusters"
    )
    if by_k[best] >= UNSTABLE:
        warning = (
            f"there are no clear clusters: two samples of the texts agree by {agreement:.2f} on "
            f"the clearest number, {clearest} (1 is fully, 0 as by chance), so the most stable of "
            f"the small numbers is used, {best}"
        )
    warning += "; treat them as a rough division, or choose the number yourself with k"
    return KSelection(best, tuple(candidates), by_k[best], warning)


def best_separated(candidates: Sequence[Candidate]) -> int:
    """The smallest k whose difference is close to the largest one."""
    best = max(candidate.difference for candidate in candidates)
    if best <= 0:  # no better than without clusters anywhere
        return max(candidates, key=lambda candidate: candidate.difference).k
    return min(each.k for each in candidates if each.difference >= CLOSE * best)


def candidate_numbers(count: int) -> list[int]:
    """Values of k from 2 to a tenth of the number of vectors, increasingly far apart.

    Of few vectors the square root, which is then larger.
    """
    last = min(MAX_K, max(int(count**0.5), count // MIN_CLUSTER_SIZE))
    return list(_geometric_grid(max(2, last)))


def silhouette(vectors: Vectors, labels: Labels) -> float:
    """The mean silhouette of unit vectors (n, D) with distances 1 − cosine, from -1 to 1.

    The mean cosine of a vector with a cluster is its product with the mean of the cluster, so no
    (n, n) matrix is needed. A vector alone in its cluster counts 0, and so does a single cluster.
    """
    names, labels = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        return 0.0
    rows = np.arange(len(vectors))
    sizes = np.bincount(labels)
    sums = np.asarray(membership(labels, len(names)) @ vectors)
    cosine_sums = vectors @ sums.T  # (n, clusters)
    own_size = sizes[labels]
    # without the cosine of the vector with itself
    own_sum = cosine_sums[rows, labels] - np.square(vectors).sum(axis=1)
    within = 1 - own_sum / np.maximum(1, own_size - 1)
    distances = 1 - cosine_sums / sizes
    distances[rows, labels] = np.inf
    between = distances.min(axis=1)
    widths = (between - within) / np.maximum(1e-9, np.maximum(within, between))
    return float(np.where(own_size > 1, widths, 0.0).mean(dtype=np.float64))


def stability(vectors: Vectors, k: int, seed: int) -> float:
    """How well two samples agree on k clusters: mean minus deviation of the adjusted Rand index."""
    from sklearn.metrics import adjusted_rand_score  # type: ignore[import-untyped]

    # Disjoint halves where there are enough vectors; samples that overlap where there are few.
    minimum = min(MIN_SAMPLE_SIZE, len(vectors) * 4 // 5)
    size = min(SAMPLE_SIZE, max(len(vectors) // 2, minimum))
    agreements = []
    for pair in range(NUM_PAIRS):
        order = np.random.default_rng((seed, pair)).permutation(len(vectors))
        first = np.sort(order[:size])
        second = np.sort(order[-size:])
        union = vectors[np.union1d(first, second)]
        labels = []
        for sample in (first, second):
            # Of few vectors, a sample may be smaller than a candidate.
            centroids = fit_centroids(vectors[sample], min(k, size), seed + pair, INITIALIZATIONS)
            labels.append(nearest_centroids(union, centroids)[0])
        agreements.append(adjusted_rand_score(*labels))
    return float(np.mean(agreements) - np.std(agreements))


def _samples(vectors: Vectors, seed: int) -> list[Vectors]:
    """One sample for each run; all vectors where they are few."""
    samples = []
    for run in range(NUM_RUNS):
        order = np.random.default_rng((seed, run, 1)).permutation(len(vectors))
        samples.append(vectors[np.sort(order[:SAMPLE_SIZE])])
    return samples


def _gaussian_like(vectors: Vectors, seed: int) -> Vectors:
    """Unit vectors without clusters: Gaussian, with the mean and covariance of these."""
    rng = np.random.default_rng((seed, 2))
    mean = vectors.mean(axis=0)
    count = min(SAMPLE_SIZE, len(vectors))
    centred = vectors - mean
    variances, axes = np.linalg.eigh(centred.T @ centred / len(vectors))
    deviations = np.sqrt(np.maximum(0, variances))
    draws = rng.normal(size=(count, len(deviations))) * deviations
    return normalize(np.asarray(mean + draws @ axes.T, np.float32))


def _mean_silhouette(samples: Sequence[Vectors], k: int, seed: int) -> float:
    values = []
    for run, vectors in enumerate(samples):
        centroids = fit_centroids(vectors, k, seed + run, RUN_INITIALIZATIONS)
        values.append(silhouette(vectors, nearest_centroids(vectors, centroids)[0]))
    return float(np.mean(values))


def _reduce(vectors: Vectors, seed: int) -> Vectors:
    """The vectors on the directions of largest second moment, at length 1."""
    if vectors.shape[1] <= COMPONENTS:
        return vectors
    rng = np.random.default_rng(seed)
    sample = vectors[rng.permutation(len(vectors))[:PCA_SAMPLE_SIZE]]
    # Not centred: what has to survive are cosines, not distances from the mean.
    axes = np.linalg.eigh(sample.T @ sample)[1][:, -COMPONENTS:]
    return normalize(np.asarray(vectors @ axes, np.float32))


def _geometric_grid(last: int) -> Iterator[int]:
    k = 2
    while k < last:
        yield k
        k = max(k + 1, round(k * GROWTH))
    yield last
