"""Texts and vectors whose groups are known, because they were put there."""

import numpy as np

TOPICS = {
    "ships": ("harbour", "sail", "anchor", "captain", "deck"),
    "bread": ("flour", "yeast", "oven", "dough", "crust"),
    "chess": ("pawn", "rook", "bishop", "castle", "gambit"),
    "birds": ("feather", "nest", "wing", "beak", "robin"),
    "rivers": ("water", "bank", "flood", "bridge", "delta"),
}
COMMON = ("the", "and", "with", "this", "very")


def planted(
    groups: int = 3, each: int = 23, noise: float = 0.6, seed: int = 0, width: int = 31
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts, vectors and the true group of each, in mixed order."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(groups), each))
    centroids = np.linalg.qr(rng.normal(size=(width, groups)))[0].T  # at right angles
    vectors = centroids[truth] + noise * rng.normal(size=(len(truth), width)) / width**0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = list(TOPICS.values())
    texts = [
        " ".join([*rng.permutation(COMMON)[:3], *rng.permutation(words[group])[:3], f"no{i}"])
        for i, group in enumerate(truth)
    ]
    return texts, vectors.astype(np.float32), truth


def same_division(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two labellings put the same things together."""
    pairs = set(zip(np.asarray(one).tolist(), np.asarray(other).tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))
