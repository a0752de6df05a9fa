"""Whether pairs are put in the same order as people put them: Spearman's rank correlation."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qkv.errors import DataError


def spearman(guessed: Sequence[float], truth: Sequence[float]) -> float:
    """1 if both order the pairs alike, -1 if the other way round, 0 if one says nothing.

    Equal values share the mean of their ranks. Guesses that are all equal order nothing and get
    0; a truth that is all equal cannot be used and is an error.
    """
    if len(guessed) != len(truth):
        raise DataError(f"{len(guessed)} guesses but {len(truth)} true scores; give one for each")
    if len(truth) < 2:
        raise DataError(f"{len(truth)} scored pairs; a rank correlation needs at least two")
    first, second = (_numbers(name, of) for name, of in (("guess", guessed), ("score", truth)))
    if np.all(second == second[0]):
        raise DataError(
            f"all {len(truth)} true scores are {second[0]:g}; "
            "a rank correlation needs at least two different ones"
        )
    if np.all(first == first[0]):
        return 0.0
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 for the smallest; values that are equal share the mean of their ranks."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    means: NDArray[np.float64] = last - (sizes - 1) / 2
    return means[group]


def _numbers(name: str, values: Sequence[float]) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if np.isnan(numbers).any():
        at = int(np.isnan(numbers).argmax())
        raise DataError(f"{name} {at + 1} of {len(numbers)} is not a number; leave that pair out")
    return numbers
