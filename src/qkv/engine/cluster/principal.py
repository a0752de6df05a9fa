"""Fewer numbers a vector: its places along the directions in which the vectors differ most.

Principal components (Pearson 1901), from the (D, D) matrix of covariances: no (n, n) one.
"""

import numpy as np

from qkv.engine.cluster.centres import Vectors, portions


def directions(vectors: Vectors, width: int) -> tuple[Vectors, Vectors]:
    """The mean (D,) and the `width` directions (D, width) with the largest spread, or all D."""
    centre = vectors.mean(axis=0, dtype=np.float64)
    spread = np.zeros((vectors.shape[1], vectors.shape[1]))
    for part in portions(len(vectors)):
        gone = vectors[part] - centre
        spread += gone.T @ gone
    found = np.linalg.eigh(spread)[1][:, ::-1][:, :width]
    signs = np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])])
    return centre.astype(np.float32), (found * signs).astype(np.float32)


def principal(vectors: Vectors, width: int) -> Vectors:
    """The places of the vectors along their main directions: (n, width), or (n, D) if less."""
    centre, along = directions(vectors, width)
    return np.asarray((vectors - centre) @ along, np.float32)
