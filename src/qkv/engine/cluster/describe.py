"""What a division of texts amounts to: sizes, centres, distances, medoids, names, outliers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qkv.engine.cluster.centres import Labels, Vectors, means, nearest, unit
from qkv.engine.cluster.clustering import OUTLIERS, Cluster, Clustering
from qkv.engine.cluster.naming import names
from qkv.engine.cluster.stability import Choice

TYPICAL = 5  # texts kept for each cluster
FENCE = 1.5  # Tukey's: so many times the distance between the quartiles beyond the third

Distances = NDArray[np.float64]


def described(
    texts: Sequence[str], vectors: Vectors, labels: Labels, method: str, choice: Choice
) -> Clustering:
    """The clusters numbered by size, with all that is said of them; −1 are outliers."""
    labels = _by_size(labels)
    count = int(labels.max()) + 1
    distances = _distances(vectors, labels, count)
    ids = [*range(count), *([OUTLIERS] if (labels == OUTLIERS).any() else [])]
    near = {each: _nearest(labels, distances, each) for each in ids}
    medoids = {each: texts[near[each][0]] for each in ids}
    called = names(texts, labels, count, [medoids[each] for each in range(count)])
    clusters = tuple(
        Cluster(
            id=each,
            size=int((labels == each).sum()),
            name=called[each] if each != OUTLIERS else "outliers",
            medoid=medoids[each],
            nearest=near[each],
        )
        for each in ids
    )
    far = _far_out(labels, distances)
    remarks = _remarks(count, choice)
    return Clustering(texts, labels, distances, clusters, far, method, choice.stability, remarks)


def _by_size(labels: Labels) -> Labels:
    """Numbered anew, the largest cluster first; of equal ones that whose first text is first."""
    found, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    real = np.flatnonzero(found >= 0)
    order = real[np.lexsort((first[real], -sizes[real]))]
    numbers = np.full(len(found), OUTLIERS)
    numbers[order] = np.arange(len(order))
    return np.asarray(numbers[np.searchsorted(found, labels)], np.int64)


def _distances(vectors: Vectors, labels: Labels, count: int) -> Distances:
    """1 − cosine to the text's own centre; of an outlier to the nearest one, if there is any."""
    centres = means(vectors, labels, count) if count else unit(vectors.mean(axis=0)[None])
    own = np.where(labels == OUTLIERS, nearest(vectors, centres)[0], labels)
    cosines = np.empty(len(vectors))
    for each in range(len(centres)):
        inside = np.flatnonzero(own == each)
        cosines[inside] = vectors[inside] @ centres[each]
    return np.asarray(np.clip(1 - cosines, 0, 2), np.float64)


def _nearest(labels: Labels, distances: Distances, label: int) -> tuple[int, ...]:
    """The numbers of the texts nearest the centre, of equally near ones the first."""
    inside = np.flatnonzero(labels == label)
    return tuple(inside[np.argsort(distances[inside], kind="stable")[:TYPICAL]].tolist())


def _far_out(labels: Labels, distances: Distances) -> tuple[int, ...]:
    """Texts that belong nowhere, or lie beyond Tukey's fence in their cluster; farthest first."""
    far = labels == OUTLIERS
    for label in range(int(labels.max()) + 1):
        inside = labels == label
        low, high = np.quantile(distances[inside], [0.25, 0.75])
        far |= inside & (distances > high + FENCE * max(high - low, 1e-6))
    numbers = np.flatnonzero(far)
    return tuple(numbers[np.argsort(-distances[numbers], kind="stable")].tolist())


def _remarks(count: int, choice: Choice) -> tuple[str, ...]:
    said = [choice.remark] if choice.remark else []
    if not count:
        said.append("no cluster was found: all texts are outliers; try --method kmeans")
    elif choice.k is not None and count < choice.k:
        said.append(f"{count} clusters instead of {choice.k}: other texts have equal vectors")
    return tuple(said)
