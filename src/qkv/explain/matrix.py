"""The small matrices people work by hand: float64, with a name for every row and column."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def labels(words: Sequence[str]) -> tuple[str, ...]:
    """The words on one line each; one that stands twice gets a number: the, cat, the(2)."""
    named: list[str] = []
    for word in words:
        label = shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in word) or '""'
        count = 1
        while label in named:
            count += 1
            label = f"{shown}({count})"
        named.append(label)
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
