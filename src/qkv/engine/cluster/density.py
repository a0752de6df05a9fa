"""Clusters of any shape and number: where texts lie densely, with the rest left over as outliers.

HDBSCAN (Campello, Moulavi and Sander 2013; McInnes and Healy 2017). Density means little among
hundreds of numbers, so each vector is first brought to a few principal components and to length 1
again. HDBSCAN takes a time that grows with the square of the number of texts: of many texts a
sample is clustered, and each other one joins the cluster of the sampled text nearest to it, or
the outliers if that one does. Distances exist between a portion and the sample only.
"""

import numpy as np

from qkv.engine.cluster.centres import Labels, Vectors, portions, unit
from qkv.engine.cluster.principal import directions
from qkv.errors import DataError

WIDTH = 20  # principal components
SAMPLE = 10_000
SMALLEST, SHARE = 5, 200  # texts in a cluster: so many, or one in so many if that is more
NEIGHBOURS = 5
PORTION = 1_024


def dense_labels(vectors: Vectors, seed: int) -> Labels:
    """The number of each vector's cluster, −1 for those that lie between all of them: (n,)."""
    if len(vectors) < 2 * SMALLEST:
        raise DataError(
            f"{len(vectors)} texts are too few for hdbscan, which needs {2 * SMALLEST}; "
            "use --method kmeans"
        )
    draws = np.random.default_rng(seed)
    size = min(SAMPLE, len(vectors))
    chosen = np.sort(draws.choice(len(vectors), size, replace=False))
    centre, along = directions(vectors[chosen], WIDTH)
    sample = _reduced(vectors[chosen], centre, along)
    labels = _hdbscan(sample)
    return labels if size == len(vectors) else _joined(vectors, centre, along, sample, labels)


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
    for part in portions(len(vectors), PORTION):
        likeness = _reduced(vectors[part], centre, along) @ sample.T  # (portion, sample)
        found[part] = labels[likeness.argmax(axis=1)]
    return found


def _reduced(vectors: Vectors, centre: Vectors, along: Vectors) -> Vectors:
    return unit(np.asarray((vectors - centre) @ along, np.float32))
