"""Batches of texts that are nearly equally long, so that next to nothing is padding."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

PADDING = 0.03  # the share of one batch at which it is closed early,
LEAST = 0.3  # once it has this share of its budget


def near_length(lengths: Ids, budget: int, draws: np.random.Generator) -> list[Ids]:
    """Every example once, in batches of at most `budget` tokens with their padding.

    lengths (N, sides): one side for a text, two for a text and its translation. An example longer
    than the budget is a batch of its own. Equal lengths are drawn in another order, and so are
    the batches: the result is a pure function of the arguments and the draws.
    """
    order = draws.permutation(len(lengths))
    order = order[_by_length(lengths[order])]
    cuts = _cuts(lengths[order], budget)
    batches = np.split(order, cuts)
    return [batches[i] for i in draws.permutation(len(batches))]


def padding(lengths: Ids, batches: list[Ids]) -> float:
    """The share of all tokens computed that is padding."""
    computed = sum(len(batch) * int(lengths[batch].max(axis=0).sum()) for batch in batches)
    return 1.0 - int(lengths.sum()) / max(1, computed)


def _by_length(lengths: Ids) -> Ids:
    """Sorted by the last side; among equals by the one before, up and down by turns.

    So neighbours differ little on every side, also where one length gives way to the next.
    """
    last = lengths[:, -1]
    if lengths.shape[1] == 1:
        return np.argsort(last, kind="stable")
    turns = np.where(last[:, None] % 2 == 0, lengths[:, :-1], -lengths[:, :-1])
    return np.lexsort((*turns.T, last))


def _cuts(lengths: Ids, budget: int) -> list[int]:
    """Before which examples a new batch begins."""
    cuts, start, longest, real = list[int](), 0, [0] * lengths.shape[1], 0
    for i, sides in enumerate(lengths.tolist()):
        grown = [max(pair) for pair in zip(longest, sides, strict=True)]
        computed = (i - start + 1) * sum(grown)
        padded = computed - real - sum(sides)
        wasteful = computed > LEAST * budget and padded > PADDING * computed
        if i > start and (computed > budget or wasteful):
            cuts.append(i)
            start, grown, real = i, sides, 0
        longest, real = grown, real + sum(sides)
    return cuts
