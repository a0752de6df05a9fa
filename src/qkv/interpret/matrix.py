"""Small float64 matrices for people: row and column labels, rounding and number formatting."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def unique_labels(words: Sequence[str]) -> tuple[str, ...]:
    """One printable single-line label per word; repeated words are numbered: the, cat, the(2)."""
    labels: list[str] = []
    for word in words:
        # repr escapes control characters: a line break becomes the two characters \n.
        printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in word) or '""'
        label = printable
        count = 1
        while label in labels:
            count += 1
            label = f"{printable}({count})"
        labels.append(label)
    return tuple(labels)


def column_labels(letter: str, width: int) -> tuple[str, ...]:
    """q1, q2, …"""
    return tuple(f"{letter}{i + 1}" for i in range(width))


def format_shape(matrix: Matrix) -> str:
    """Rows × columns, as in 3×2."""
    return f"{matrix.shape[0]}×{matrix.shape[1]}"


def round_half_away(value: float, precision: int) -> float:
    """The value rounded to `precision` decimals, halves away from zero, as taught at school.

    A value within 1e-7 units of the last digit below a half counts as a half:
    1.16 × 0.61 + 0.23 × 0.13 is exactly 0.7375, but the binary result is a little less.
    """
    scaled = abs(value) * 10.0**precision
    # From 1e15 on a float64 has no digits after the point left to round; inf and NaN stay too.
    if not scaled < 1e15:
        return value
    return math.copysign(math.floor(scaled + 0.5 + 1e-7) / 10.0**precision, value) + 0.0


def round_matrix(matrix: Matrix, precision: int) -> Matrix:
    """Every cell rounded by `round_half_away`."""
    cells = [round_half_away(cell, precision) for cell in matrix.flat]
    return np.array(cells, dtype=np.float64).reshape(matrix.shape)


def format_number(value: float, precision: int) -> str:
    """The rounded value with a typographic minus sign, −∞ for infinity and no minus before zero."""
    if np.isinf(value):
        return "−∞" if value < 0 else "∞"
    text = f"{round_half_away(value, precision):.{precision}f}"
    if float(text) == 0.0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def format_term(value: float, precision: int) -> str:
    """The same as a term of a sum or a product: negative numbers in parentheses."""
    text = format_number(value, precision)
    if text.startswith("−"):
        return f"({text})"
    return text


def exact_decimals(matrix: Matrix, limit: int) -> int:
    """The fewest decimals, up to `limit`, that print every finite number of the matrix exactly."""
    finite = matrix[np.isfinite(matrix)]
    for count in range(limit):
        if all(float(f"{cell:.{count}f}") == cell for cell in finite):
            return count
    return limit


def cosine(a: Matrix, b: Matrix) -> float:
    """Cosine similarity of two vectors; 0 if either is all zeros."""
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms == 0.0:
        return 0.0
    return float(a @ b) / norms
