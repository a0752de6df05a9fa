"""HDBSCAN (Campello, Moulavi and Sander 2013; McInnes and Healy 2017) on embeddings.

It finds clusters of any shape and number, and leaves the texts between them as outliers. Density
means little in hundreds of dimensions, so vectors are first projected on a few principal axes and
normalised again. The running time grows with the square of the number of texts: of many texts a
sample is clustered, and every other text gets the label of its nearest neighbour in the sample.
"""

import numpy as np

from qkv.engine.cluster.kmeans import Labels, Vectors, normalize, principal_axes, row_slices
from qkv.errors import DataError

COMPONENTS = 20

SAMPLE_SIZE = 10_000

# A cluster has at least MIN_CLUSTER_SIZE texts, and at least one in MIN_CLUSTER_DIVISOR of all.
MIN_CLUSTER_SIZE = 5
MIN_CLUSTER_DIVISOR = 200

MIN_SAMPLES = 5  # neighbours that make a point a core point

SLICE_ROWS = 1_024


def hdbscan_labels(vectors: Vectors, seed: int) -> Labels:
    """The cluster of each vector (n,), −1 for outliers."""
    if len(vectors) < 2 * MIN_CLUSTER_SIZE:
        raise DataError(
            f"{len(vectors)} texts are too few for hdbscan, which needs {2 * MIN_CLUSTER_SIZE}; "
            'use method="kmeans"'
        )
    rng = np.random.default_rng(seed)
    size = min(SAMPLE_SIZE, len(vectors))
    indices = np.sort(rng.choice(len(vectors), size, replace=False))
    mean, axes = principal_axes(vectors[indices], COMPONENTS)
    sample = _project(vectors[indices], mean, axes)
    labels = _fit(sample)
    if size == len(vectors):
        return labels
    # A vector of the sample is its own nearest neighbour, so it keeps its label.
    all_labels = np.empty(len(vectors), np.int64)
    for rows in row_slices(len(vectors), SLICE_ROWS):
        similarity = _project(vectors[rows], mean, axes) @ sample.T  # (rows, sample)
        all_labels[rows] = labels[similarity.argmax(axis=1)]
    return all_labels


def _fit(vectors: Vectors) -> Labels:
    from sklearn.cluster import HDBSCAN  # type: ignore[import-untyped]

    method = HDBSCAN(
        min_cluster_size=max(MIN_CLUSTER_SIZE, len(vectors) // MIN_CLUSTER_DIVISOR),
        min_samples=MIN_SAMPLES,
        algorithm="kd_tree",
        copy=True,
    )
    return np.asarray(method.fit_predict(vectors), np.int64)


def _project(vectors: Vectors, mean: Vectors, axes: Vectors) -> Vectors:
    """The vectors on the principal axes, at length 1."""
    return normalize(np.asarray((vectors - mean) @ axes, np.float32))
