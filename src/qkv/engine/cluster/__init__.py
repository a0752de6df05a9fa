"""Clusters of similar texts from their embeddings: k-means or HDBSCAN, named by their words."""

from qkv.engine.cluster.choose_k import Candidate
from qkv.engine.cluster.cluster_page import (
    check_output_paths,
    map_positions,
    sample_indices,
    scatter_svg,
    write_clustering,
)
from qkv.engine.cluster.clustering import (
    METHODS,
    OUTLIERS,
    Cluster,
    Clustering,
    Method,
    Span,
    check_cluster_args,
    cluster,
    tokens_by_word,
)

__all__ = [
    "METHODS",
    "OUTLIERS",
    "Candidate",
    "Cluster",
    "Clustering",
    "Method",
    "Span",
    "check_cluster_args",
    "check_output_paths",
    "cluster",
    "map_positions",
    "sample_indices",
    "scatter_svg",
    "tokens_by_word",
    "write_clustering",
]
