"""Clusters of similar texts from their embeddings: k-means or HDBSCAN, named by their words."""

from qkv.engine.cluster.cluster_page import check_output_paths, write_clustering
from qkv.engine.cluster.clustering import (
    METHODS,
    OUTLIERS,
    Cluster,
    Clustering,
    Method,
    check_cluster_args,
    cluster,
)

__all__ = [
    "METHODS",
    "OUTLIERS",
    "Cluster",
    "Clustering",
    "Method",
    "check_cluster_args",
    "check_output_paths",
    "cluster",
    "write_clustering",
]
