"""Spherical k-means: k centres of length 1, and each vector with the one it points along most.

Dhillon and Modha 2001. Of unit vectors the nearest centre is the one of the largest cosine, and
the best centre of some vectors is their mean, brought to length 1. It starts from spread seeds
(k-means++, Arthur and Vassilvitskii 2007), several times on a sample, and the best of these goes
on over all vectors. Only n cosines with k centres ever exist, and those a portion at a time.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# FOLDED engine/cluster/principal: Fewer numbers a vector: its places along the directions in
#   which the vectors differ most.
#
#   Principal components (Pearson 1901), from the (D, D) matrix of covariances: no (n, n) one.

Vectors = NDArray[np.float32]  # (n, D), rows of length 1

Labels = NDArray[np.int64]  # (n,)

# vectors the starts are tried on: in all, and for each centre
SAMPLE = 5_000
A_CENTRE = 30

STARTS = 10

WORK = 2_000_000  # cosines of one round above which fewer starts are tried

ROUNDS = 100

ENOUGH = 1e-5  # a round that brings less than this share ends it

PORTION = 4_096  # vectors at a time


def fit_centroids(vectors: Vectors, k: int, seed: int, starts: int = STARTS) -> Vectors:
    """The centres (k, D) with the largest sum of cosines that was found."""
    draws = np.random.default_rng(seed)
    size = min(len(vectors), max(SAMPLE, A_CENTRE * k))
    sample = vectors[np.sort(draws.choice(len(vectors), size, replace=False))]
    tries = max(1, min(starts, WORK * starts // (size * k)))
    found = [_settled(sample, _seeds(sample, k, draws)) for _ in range(tries)]
    centres = max(found, key=lambda pair: pair[0])[1]
    if size == len(vectors):
        return centres
    return _settled(vectors, centres)[1]


def nearest_centroids(vectors: Vectors, centres: Vectors) -> tuple[Labels, Vectors]:
    """For each vector the number of its nearest centre, and its cosine with it: (n,) each."""
    labels = np.empty(len(vectors), np.int64)
    cosines = np.empty(len(vectors), np.float32)
    for part in row_slices(len(vectors)):
        likeness = vectors[part] @ centres.T  # (portion, k)
        labels[part] = likeness.argmax(axis=1)
        cosines[part] = likeness.max(axis=1)
    return labels, cosines


def centroids_of(vectors: Vectors, labels: Labels, k: int) -> Vectors:
    """The mean of each label's vectors at length 1, (k, D); zeros for a label nobody has."""
    return normalize(np.asarray(members(labels, k) @ vectors))


def members(labels: Labels, k: int) -> Any:
    """Which vectors have each label: a sparse (k, n) of ones; those with another one are in no row.

    Times a matrix of n rows, it adds up the rows of each label.
    """
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    inside = np.flatnonzero((labels >= 0) & (labels < k))
    ones = np.ones(len(inside), np.float32)
    return csr_matrix((ones, (labels[inside], inside)), shape=(k, len(labels)))


def normalize(vectors: Vectors) -> Vectors:
    """The same directions at length 1; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def row_slices(count: int, size: int = PORTION) -> Iterator[slice]:
    """All of them, some at a time."""
    return (slice(at, at + size) for at in range(0, count, size))


def _seeds(vectors: Vectors, k: int, draws: np.random.Generator) -> Vectors:
    """k of the vectors, drawn one after the other, far ones rather than near ones.

    Of a few drawn each time, the one that leaves all others nearest to some seed is kept.
    """
    trials = 2 + int(np.log(k))
    chosen = [int(draws.integers(len(vectors)))]
    far = np.maximum(0, 1 - vectors @ vectors[chosen[0]])  # (n,), to the nearest seed
    while len(chosen) < k:
        heights = np.cumsum(far, dtype=np.float64)
        at = np.searchsorted(heights, draws.random(trials) * heights[-1], side="right")
        drawn = np.minimum(at, len(vectors) - 1)
        left = np.minimum(far, np.maximum(0, 1 - vectors[drawn] @ vectors.T))  # (trials, n)
        best = int(left.sum(axis=1).argmin())
        chosen.append(int(drawn[best]))
        far = left[best]
    return vectors[chosen]


def _settled(vectors: Vectors, centres: Vectors) -> tuple[float, Vectors]:
    """Vectors to centres and centres to means by turns, until little changes: the sum, and them."""
    before = -np.inf
    for _ in range(ROUNDS):
        labels, cosines = nearest_centroids(vectors, centres)
        total = float(cosines.sum(dtype=np.float64))
        if total - before <= ENOUGH * abs(total):
            break
        before = total
        _fill_empty(labels, cosines, len(centres))
        centres = centroids_of(vectors, labels, len(centres))
    return total, centres


def _fill_empty(labels: Labels, cosines: Vectors, k: int) -> None:
    """A centre without vectors takes the one that lies worst."""
    empty = np.flatnonzero(np.bincount(labels, minlength=k) == 0)
    if len(empty):
        worst = np.argsort(cosines, kind="stable")[: len(empty)]
        labels[worst] = empty[: len(worst)]


def directions(vectors: Vectors, width: int) -> tuple[Vectors, Vectors]:
    """The mean (D,) and the `width` directions (D, width) with the largest spread, or all D."""
    centre = vectors.mean(axis=0, dtype=np.float64)
    spread = np.zeros((vectors.shape[1], vectors.shape[1]))
    for part in row_slices(len(vectors)):
        gone = vectors[part] - centre
        spread += gone.T @ gone
    found = np.linalg.eigh(spread)[1][:, ::-1][:, :width]
    signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
    return centre.astype(np.float32), (found * signs).astype(np.float32)


def principal(vectors: Vectors, width: int) -> Vectors:
    """The places of the vectors along their main directions: (n, width), or (n, D) if less."""
    centre, along = directions(vectors, width)
    return np.asarray((vectors - centre) @ along, np.float32)
