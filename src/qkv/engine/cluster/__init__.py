"""Groups of similar texts, found in their vectors, named by their words, and told to people."""

from qkv.engine.cluster.clustering import OUTLIERS, Cluster, Clustering
from qkv.engine.cluster.find import METHODS, Method, cluster, expect_possible
from qkv.engine.cluster.write import check_places, write_clustering

__all__ = [
    "METHODS",
    "OUTLIERS",
    "Cluster",
    "Clustering",
    "Method",
    "check_places",
    "cluster",
    "expect_possible",
    "write_clustering",
]
