"""The small matrices people work by hand: float64, with a name for every row and column."""

import math
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


def school(value: float, precision: int) -> float:
    """Rounded as at school: a half goes away from zero.

    What a computer cannot tell from a half is one: 1.16 × 0.61 + 0.23 × 0.13 is 0.7375, though in
    binary a little less comes out.
    """
    scaled = abs(value) * 10.0**precision
    if not scaled < 1e15:  # all digits are before the point anyway
        return value
    return math.copysign(math.floor(scaled + 0.5 + 1e-7) / 10.0**precision, value) + 0.0


def rounded(matrix: Matrix, precision: int) -> Matrix:
    """What a reader sees of it."""
    shown = [school(cell, precision) for cell in matrix.flat]
    return np.array(shown, dtype=np.float64).reshape(matrix.shape)


def figure(value: float, precision: int) -> str:
    """One number as people read it: a real minus sign, −∞ as such, no minus before zero."""
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{school(value, precision):.{precision}f}"
    if float(text) == 0.0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def signed(value: float, precision: int) -> str:
    """The same inside a sum or a product: a negative number in brackets."""
    text = figure(value, precision)
    return f"({text})" if text.startswith("−") else text


def cosine(a: Matrix, b: Matrix) -> float:
    """Of two vectors; one that is all zeros is like nothing."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


def decimals(matrix: Matrix, most: int) -> int:
    """The fewest decimals, up to `most`, that show every number of the matrix exactly."""
    finite = matrix[np.isfinite(matrix)]
    for count in range(most):
        if all(float(f"{cell:.{count}f}") == cell for cell in finite):
            return count
    return most
