"""The number of clusters: the largest k on which two samples of the texts agree.

For each candidate k, two samples of the vectors are clustered separately, and every vector of both
is assigned to its nearest centroid, once with the centroids of each sample. The adjusted Rand
index of the two assignments is 1 if they are the same and 0 if they agree as by chance, at any k
(Lange, Roth, Braun and Buhmann 2004; Dolnicar and Leisch 2010). Its mean over several pairs of
samples, minus the standard deviation, is the stability of k.

Among the candidates close to the best, the largest is taken, because a coarser division of real
groups is often as stable as the groups themselves; then it steps down as long as the next smaller
candidate is clearly better.

Samples have a limited size, so the cost is about the same for ten thousand texts and for a
million; and vectors are reduced to the few directions that preserve most cosines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qkv.engine.cluster.kmeans import Vectors, fit_centroids, nearest_centroids, normalize

MAX_K = 100

GROWTH = 1.18  # ratio of successive candidates, which are at least 1 apart

NUM_PAIRS = 6
SAMPLE_SIZE = 2_000

MIN_SAMPLE_SIZE = 200  # where half of the vectors are fewer, the two samples of a pair overlap

INITIALIZATIONS = 5

# Vectors are projected on COMPONENTS directions, estimated from PCA_SAMPLE_SIZE of them.
COMPONENTS = 64
PCA_SAMPLE_SIZE = 10_000

# Differences in stability: close to the best; clearly better than the next candidate.
CLOSE = 0.1
CLEAR = 0.03

# Early stopping: this much below the best, this many times in a row.
FAR_BELOW = 0.25
FAR_BELOW_COUNT = 5

UNSTABLE = 0.3  # below this, two samples hardly agree on anything

# Early stopping: nothing better than this among the first candidates.
NO_AGREEMENT = 0.1
PATIENCE = 12

OnCandidate = Callable[[int, float], None]  # receives k and its stability


@dataclass(frozen=True)
class KSelection:
    """The number of clusters, None where the method determines it, and why it was selected."""

    k: int | None
    stability: Mapping[int, float] = field(default_factory=dict)  # of each candidate
    warning: str = ""


def choose_k(
    vectors: Vectors, seed: int, on_candidate: OnCandidate = lambda k, stability: None
) -> KSelection:
    """The largest k that is about as stable as the best; needs at least 4 vectors."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    reduced = _reduce(vectors, seed)
    by_k = dict[int, float]()
    for k in candidates(len(vectors)):
        with threadpool_limits(1):  # the products are small: more threads wait for each other
            by_k[k] = stability(reduced, k, seed)
        on_candidate(k, by_k[k])
        if _stop_early(list(by_k.values())):
            break
    best = max(by_k, key=lambda k: by_k[k])
    if by_k[best] < UNSTABLE:
        return KSelection(best, by_k, _unstable_warning(best, by_k[best]))
    return KSelection(largest_stable(by_k), by_k)


def largest_stable(stability: Mapping[int, float]) -> int:
    """The k to use, given the stability of each candidate in ascending order."""
    tested = list(stability)
    threshold = max(stability.values()) - CLOSE
    i = max(i for i, k in enumerate(tested) if stability[k] >= threshold)
    while i and stability[tested[i - 1]] > stability[tested[i]] + CLEAR:
        i -= 1
    return tested[i]


def candidates(count: int) -> list[int]:
    """Values of k from 2 to the square root of the number of vectors, increasingly far apart."""
    return list(_geometric_grid(max(2, min(MAX_K, int(count**0.5)))))


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
            centroids = fit_centroids(vectors[sample], k, seed + pair, INITIALIZATIONS)
            labels.append(nearest_centroids(union, centroids)[0])
        agreements.append(adjusted_rand_score(*labels))
    return float(np.mean(agreements) - np.std(agreements))


def _reduce(vectors: Vectors, seed: int) -> Vectors:
    """The vectors on the directions of largest second moment, at length 1."""
    if vectors.shape[1] <= COMPONENTS:
        return vectors
    rng = np.random.default_rng(seed)
    sample = vectors[rng.permutation(len(vectors))[:PCA_SAMPLE_SIZE]]
    # Not centred: what has to survive are cosines, not distances from the mean.
    axes = np.linalg.eigh(sample.T @ sample)[1][:, -COMPONENTS:]
    return normalize(np.asarray(vectors @ axes, np.float32))


def _stop_early(stability: Sequence[float]) -> bool:
    """Whether larger candidates can be skipped, given the stability of those so far."""
    recent = stability[-FAR_BELOW_COUNT:]
    best = max(stability)
    falling = len(recent) == FAR_BELOW_COUNT and max(recent) < best - FAR_BELOW
    hopeless = len(stability) >= PATIENCE and best < NO_AGREEMENT
    return falling or hopeless


def _unstable_warning(k: int, stability: float) -> str:
    return (
        f"no number of clusters is stable: two samples of the texts agree by {stability:.2f} at "
        f"best (1 is fully, 0 as by chance), with {k} clusters; treat them as a rough division, or "
        "choose the number yourself with k"
    )


def _geometric_grid(last: int) -> Iterator[int]:
    k = 2
    while k < last:
        yield k
        k = max(k + 1, round(k * GROWTH))
    yield last
