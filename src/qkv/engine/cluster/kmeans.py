"""Spherical k-means (Dhillon and Modha 2001), and principal components to reduce its vectors.

For unit vectors the nearest centroid is the one with the largest cosine, and the best centroid of
a cluster is its normalised mean. Several k-means++ initialisations (Arthur and Vassilvitskii 2007)
run on a sample; the best of them continues on all vectors. Cosines with the k centroids are
computed for a slice of the vectors at a time, so no (n, k) matrix is ever held.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]  # (n, D), unit rows

Labels = NDArray[np.int64]  # (n,)

# Initialisations are compared on a sample: at least SAMPLE_SIZE vectors, more for a large k.
SAMPLE_SIZE = 5_000
SAMPLES_PER_CENTROID = 30

INITIALIZATIONS = 10

MAX_COSINES = 2_000_000  # per iteration over the sample; above it, fewer initialisations are tried

MAX_ITERATIONS = 100

TOLERANCE = 1e-5  # relative improvement of the objective below which the iteration stops

SLICE_ROWS = 4_096


def fit_centroids(
    vectors: Vectors, k: int, seed: int, initializations: int = INITIALIZATIONS
) -> Vectors:
    """The centroids (k, D) with the largest sum of cosines over all initialisations."""
    rng = np.random.default_rng(seed)
    size = min(len(vectors), max(SAMPLE_SIZE, SAMPLES_PER_CENTROID * k))
    sample = vectors[np.sort(rng.choice(len(vectors), size, replace=False))]
    runs = max(1, min(initializations, MAX_COSINES * initializations // (size * k)))
    best_objective = -np.inf
    for run in range(runs):
        objective, candidate = _iterate(sample, _plus_plus_seeds(sample, k, rng))
        if run == 0 or objective > best_objective:
            best_objective = objective
            centroids = candidate
    if size == len(vectors):
        return centroids
    return _iterate(vectors, centroids)[1]


def nearest_centroids(vectors: Vectors, centroids: Vectors) -> tuple[Labels, Vectors]:
    """The index of each vector's nearest centroid and the cosine with it, (n,) each."""
    labels = np.empty(len(vectors), np.int64)
    cosines = np.empty(len(vectors), np.float32)
    for rows in row_slices(len(vectors)):
        similarity = vectors[rows] @ centroids.T  # (rows, k)
        labels[rows] = similarity.argmax(axis=1)
        cosines[rows] = similarity.max(axis=1)
    return labels, cosines


def centroids_of(vectors: Vectors, labels: Labels, k: int) -> Vectors:
    """The normalised mean of each cluster, (k, D); zeros for a label without members."""
    return normalize(np.asarray(membership(labels, k) @ vectors))


def membership(labels: Labels, k: int) -> Any:
    """The sparse (k, n) indicator matrix of the labels; labels outside 0 … k − 1 are in no row.

    Multiplying a matrix of n rows by it sums the rows of each cluster.
    """
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    columns = np.flatnonzero((labels >= 0) & (labels < k))
    ones = np.ones(len(columns), np.float32)
    return csr_matrix((ones, (labels[columns], columns)), shape=(k, len(labels)))


def normalize(vectors: Vectors) -> Vectors:
    """The vectors at length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def row_slices(count: int, size: int = SLICE_ROWS) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows that cover `count` rows."""
    return (slice(start, start + size) for start in range(0, count, size))


def principal_axes(vectors: Vectors, components: int) -> tuple[Vectors, Vectors]:
    """The mean (D,) and the axes (D, components) of largest variance (Pearson 1901).

    They are eigenvectors of the (D, D) covariance, so no (n, n) matrix is needed. The sign of an
    axis is fixed by its largest entry, which makes the result reproducible.
    """
    mean = vectors.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((vectors.shape[1], vectors.shape[1]))
    for rows in row_slices(len(vectors)):
        deviations = vectors[rows] - mean
        scatter += deviations.T @ deviations
    # eigh sorts eigenvalues in ascending order
    axes = np.linalg.eigh(scatter)[1][:, ::-1][:, :components]
    signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    return mean.astype(np.float32), (axes * signs).astype(np.float32)


def pca(vectors: Vectors, components: int) -> Vectors:
    """The vectors projected on their principal axes: (n, components), or (n, D) if D is less."""
    mean, axes = principal_axes(vectors, components)
    return np.asarray((vectors - mean) @ axes, np.float32)


def _plus_plus_seeds(vectors: Vectors, k: int, rng: np.random.Generator) -> Vectors:
    """k of the vectors as initial centroids, far apart (greedy k-means++).

    Each seed is sampled in proportion to the distance from the seeds before it; of several
    candidates the one that leaves the smallest total distance is taken.
    """
    trials = 2 + int(np.log(k))
    seeds = [int(rng.integers(len(vectors)))]
    distances = np.maximum(0, 1 - vectors @ vectors[seeds[0]])  # (n,), to the nearest seed
    while len(seeds) < k:
        cumulative = np.cumsum(distances, dtype=np.float64)
        draws = np.searchsorted(cumulative, rng.random(trials) * cumulative[-1], side="right")
        candidates = np.minimum(draws, len(vectors) - 1)
        to_candidates = np.maximum(0, 1 - vectors[candidates] @ vectors.T)
        remaining = np.minimum(distances, to_candidates)  # (trials, n)
        best = int(remaining.sum(axis=1).argmin())
        seeds.append(int(candidates[best]))
        distances = remaining[best]
    return vectors[seeds]


def _iterate(vectors: Vectors, centroids: Vectors) -> tuple[float, Vectors]:
    """Lloyd's iteration until the sum of cosines stops growing: that sum, and the centroids."""
    previous = -np.inf
    for _ in range(MAX_ITERATIONS):
        labels, cosines = nearest_centroids(vectors, centroids)
        objective = float(cosines.sum(dtype=np.float64))
        if objective - previous <= TOLERANCE * abs(objective):
            break
        previous = objective
        _fill_empty_clusters(labels, cosines, len(centroids))
        centroids = centroids_of(vectors, labels, len(centroids))
    return objective, centroids


def _fill_empty_clusters(labels: Labels, cosines: Vectors, k: int) -> None:
    """Give each empty cluster one of the vectors that fit their own cluster worst."""
    empty = np.flatnonzero(np.bincount(labels, minlength=k) == 0)
    if len(empty):
        worst = np.argsort(cosines, kind="stable")[: len(empty)]
        labels[worst] = empty[: len(worst)]
