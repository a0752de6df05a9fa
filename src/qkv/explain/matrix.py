"""The small matrices people work by hand: float64, with a name for every row and column."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def labels(words: Sequence[str]) -> tuple[str, ...]:
    """The words themselves; one that stands twice gets a number: the, cat, the(2)."""
    seen: Counter[str] = Counter()
    named = []
    for word in words:
        seen[word] += 1
        named.append(word if seen[word] == 1 else f"{word}({seen[word]})")
    return tuple(named)


def columns(letter: str, width: int) -> tuple[str, ...]:
    """q1, q2, …"""
    return tuple(f"{letter}{i + 1}" for i in range(width))


def shape(matrix: Matrix) -> str:
    return f"{matrix.shape[0]}×{matrix.shape[1]}"


def rounded(matrix: Matrix, precision: int) -> Matrix:
    """What a reader sees of it: decimals cut as printing cuts them, −0 shown as 0."""
    shown = [[float(f"{cell:.{precision}f}") + 0.0 for cell in row] for row in matrix]
    return np.array(shown, dtype=np.float64).reshape(matrix.shape)


def figure(value: float, precision: int) -> str:
    """One number as people read it: a real minus sign, −∞ as such."""
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{value:.{precision}f}"
    if float(text) == 0.0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def decimals(matrix: Matrix, most: int) -> int:
    """The fewest decimals, up to `most`, that show every number of the matrix exactly."""
    finite = matrix[np.isfinite(matrix)]
    for count in range(most):
        if all(float(f"{cell:.{count}f}") == cell for cell in finite):
            return count
    return most
