"""Where each text stands on a map of two dimensions: alike is near, as far as a plane allows.

t-SNE (van der Maaten and Hinton 2008) of the principal components, from their first two: it keeps
neighbours together, while distances across the map mean little. Its time grows fast with the
number of points, so of many texts a sample is shown, every cluster's medoid among them.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qkv.engine.cluster.centres import Vectors, unit
from qkv.engine.cluster.clustering import Clustering
from qkv.engine.cluster.principal import principal

POINTS = 1_200
WIDTH = 50  # principal components
FEWEST = 8  # points below which the first two components are the map
NEIGHBOURS = 30  # t-SNE's perplexity


def sampled(clustering: Clustering, seed: int) -> NDArray[np.int64]:
    """The numbers of the texts that are shown, in order."""
    count = len(clustering.texts)
    drawn = np.random.default_rng(seed).permutation(count)[:POINTS]
    return np.union1d(drawn, [each.nearest[0] for each in clustering.clusters])


def places(vectors: ArrayLike, seed: int) -> Vectors:
    """A place for each vector (n, D): (n, 2), each from 0 to 1."""
    few = principal(unit(np.asarray(vectors, np.float32)), WIDTH)
    first = np.zeros((len(few), 2), np.float32)
    first[:, : few.shape[1]] = few[:, :2]
    spread = float(first[:, 0].std())
    flat = len(few) < FEWEST or spread < 1e-6
    return _framed(first if flat else _tsne(few, first / spread * 1e-4, seed))


def _tsne(vectors: Vectors, start: Vectors, seed: int) -> Vectors:
    from sklearn.manifold import TSNE  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    near = min(NEIGHBOURS, (len(vectors) - 1) / 3)
    method = TSNE(2, init=start, perplexity=near, learning_rate="auto", random_state=seed)
    with threadpool_limits(1):  # so that sums are in the same order each time
        return np.asarray(method.fit_transform(vectors), np.float32)


def _framed(points: Vectors) -> Vectors:
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - low) / np.maximum(high - low, 1e-9), np.float32)
