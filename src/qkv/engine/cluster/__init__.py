"""Groups of similar texts, found in their vectors, named by their words, and told to people."""

from qkv.engine.cluster.cluster_page import check_places, write_clustering
from qkv.engine.cluster.clustering import (
    METHODS,
    OUTLIERS,
    Cluster,
    Clustering,
    Method,
    cluster,
    expect_possible,
)

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
