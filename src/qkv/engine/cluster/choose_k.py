"""How many clusters there are, when nobody says: as many as two samples of the texts agree on.

For each candidate k, two samples of the vectors are clustered apart, and every vector of both is
given to its nearest centre, once by the centres of the one, once by those of the other. How far
the two divisions agree is their adjusted Rand index: 1 if they are the same, 0 as by chance, at
any k (Lange, Roth, Braun and Buhmann 2004; Dolnicar and Leisch 2010). Its mean over a few such
pairs, less their standard deviation, is the stability of k.

Of the candidates that come close to the best, the largest is taken, because a coarser division of
real groups is often as stable as the groups themselves; and from there a smaller one, as long as
the next smaller is clearly better.

The samples are of limited size, so this costs much the same for ten thousand texts and a million;
and each vector is brought to the few directions that keep most of all cosines.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qkv.engine.cluster.kmeans import (
    Labels,
    Vectors,
    directions,
    fit_centroids,
    nearest_centroids,
    normalize,
    row_slices,
)
from qkv.errors import DataError

# FOLDED engine/cluster/density: Clusters of any shape and number: where texts lie densely, with
#   the rest left over as outliers.
#
#   HDBSCAN (Campello, Moulavi and Sander 2013; McInnes and Healy 2017). Density means little
#   among
#   hundreds of numbers, so each vector is first brought to a few principal components and to
#   length 1
#   again. HDBSCAN takes a time that grows with the square of the number of texts: of many
#   texts a
#   sample is clustered, and each other one joins the cluster of the sampled text nearest to
#   it, or
#   the outliers if that one does. Distances exist between a portion and the sample only.

LARGEST = 100  # candidate

STEP = 1.18  # each candidate is so many times the one before, or one more

# pairs of samples, and vectors in one of them
PAIRS = 6
SAMPLE = 2_000

FEW = 200  # below so many vectors in one half, the two samples share some

STARTS = 5

# directions, and how many vectors they are taken from
WIDTH = 64
SEEN = 10_000

# nearly as good as the best; better than the one beside it
CLOSE = 0.1
CLEARLY = 0.03

# so much worse, so many times in a row: larger ones are not tried
FAR = 0.25
ENDS = 5

UNSTABLE = 0.3  # below this, two samples hardly agree on anything

# nothing above this among so many: larger ones are not tried either
CHANCE = 0.1
PATIENCE = 12

Tried = Callable[[int, float], None]


@dataclass(frozen=True)
class KSelection:
    """The number of clusters, if it is known, and how stable each one that was tried is."""

    k: int | None
    stability: Mapping[int, float] = field(default_factory=dict)
    remark: str = ""  # what a person should know, if anything


def choose_k(
    vectors: Vectors, seed: int, on_candidate: Tried = lambda k, stability: None
) -> KSelection:
    """The largest k that is about as stable as the best; at least 4 vectors are needed."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    few = _reduced(vectors, seed)
    found = dict[int, float]()
    for k in candidates(len(vectors)):
        with threadpool_limits(1):  # its products are small: more threads wait for each other
            found[k] = stability(few, k, seed)
        on_candidate(k, found[k])
        if _enough(list(found.values())):
            break
    best = max(found, key=lambda k: found[k])
    if found[best] < UNSTABLE:
        return KSelection(best, found, _rough(best, found[best]))
    return KSelection(largest_stable(found), found)


def largest_stable(found: Mapping[int, float]) -> int:
    """Of these candidates, smallest first, with their stability, the one to take."""
    on_candidate = list(found)
    least = max(found.values()) - CLOSE
    at = max(i for i, k in enumerate(on_candidate) if found[k] >= least)
    while at and found[on_candidate[at - 1]] > found[on_candidate[at]] + CLEARLY:
        at -= 1
    return on_candidate[at]


def candidates(count: int) -> list[int]:
    """From 2 to the root of the number of vectors, ever further apart."""
    return list(_grid(max(2, min(LARGEST, int(count**0.5)))))


def stability(vectors: Vectors, k: int, seed: int) -> float:
    """How far two samples agree on k clusters: the adjusted Rand index of a few pairs."""
    from sklearn.metrics import adjusted_rand_score  # type: ignore[import-untyped]

    half = min(SAMPLE, max(len(vectors) // 2, min(FEW, len(vectors) * 4 // 5)))
    agreements = []
    for pair in range(PAIRS):
        order = np.random.default_rng((seed, pair)).permutation(len(vectors))
        one = np.sort(order[:half])
        other = np.sort(order[-half:])
        both = vectors[np.union1d(one, other)]
        labels = [
            nearest_centroids(both, fit_centroids(vectors[of], k, seed + pair, STARTS))[0]
            for of in (one, other)
        ]
        agreements.append(adjusted_rand_score(*labels))
    return float(np.mean(agreements) - np.std(agreements))


def _reduced(vectors: Vectors, seed: int) -> Vectors:
    """The vectors along the directions that most of them have, at length 1."""
    if vectors.shape[1] <= WIDTH:
        return vectors
    seen = vectors[np.random.default_rng(seed).permutation(len(vectors))[:SEEN]]
    along = np.linalg.eigh(seen.T @ seen)[1][:, -WIDTH:]
    return normalize(np.asarray(vectors @ along, np.float32))


def _enough(found: Sequence[float]) -> bool:
    """Whether what was found so far says that larger ones will not be better."""
    last = found[-ENDS:]
    best = max(found)
    falls = len(last) == ENDS and max(last) < best - FAR
    return falls or (len(found) >= PATIENCE and best < CHANCE)


def _rough(k: int, stability: float) -> str:
    return (
        f"no number of clusters is stable: two samples of the texts agree by {stability:.2f} at "
        f"best (1 is fully, 0 as by chance), with {k} clusters; take them as a rough division, or "
        "say how many with -k"
    )


def _grid(last: int) -> Iterator[int]:
    k = 2
    while k < last:
        yield k
        k = max(k + 1, round(k * STEP))
    yield last


DENSITY_WIDTH = 20  # principal components

DENSITY_SAMPLE = 10_000

# texts in a cluster: so many, or one in so many if that is more
SMALLEST = 5
SHARE = 200

NEIGHBOURS = 5

PORTION = 1_024


def hdbscan_labels(vectors: Vectors, seed: int) -> Labels:
    """The number of each vector's cluster, −1 for those that lie between all of them: (n,)."""
    if len(vectors) < 2 * SMALLEST:
        raise DataError(
            f"{len(vectors)} texts are too few for hdbscan, which needs {2 * SMALLEST}; "
            "use --method kmeans"
        )
    draws = np.random.default_rng(seed)
    size = min(DENSITY_SAMPLE, len(vectors))
    chosen = np.sort(draws.choice(len(vectors), size, replace=False))
    centre, along = directions(vectors[chosen], DENSITY_WIDTH)
    sample = _reduced_for_density(vectors[chosen], centre, along)
    labels = _hdbscan(sample)
    if size == len(vectors):
        return labels
    return _joined(vectors, centre, along, sample, labels)


def _hdbscan(vectors: Vectors) -> Labels:
    from sklearn.cluster import HDBSCAN  # type: ignore[import-untyped]

    smallest = max(SMALLEST, len(vectors) // SHARE)
    method = HDBSCAN(
        min_cluster_size=smallest, min_samples=NEIGHBOURS, algorithm="kd_tree", copy=True
    )
    return np.asarray(method.fit_predict(vectors), np.int64)


def _joined(
    vectors: Vectors, centre: Vectors, along: Vectors, sample: Vectors, labels: Labels
) -> Labels:
    """The label of the nearest vector of the sample, for all: a sampled one is its own nearest."""
    found = np.empty(len(vectors), np.int64)
    for part in row_slices(len(vectors), PORTION):
        likeness = (
            _reduced_for_density(vectors[part], centre, along) @ sample.T
        )  # (portion, sample)
        found[part] = labels[likeness.argmax(axis=1)]
    return found


def _reduced_for_density(vectors: Vectors, centre: Vectors, along: Vectors) -> Vectors:
    return normalize(np.asarray((vectors - centre) @ along, np.float32))
