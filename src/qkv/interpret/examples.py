"""Worked examples as worksheets, after the study notes that this package grew out of.

The numbers of `poem` are from the notes, which also print Q, K and V for it (`NOTES_ANSWERS`). The
notes describe `same` in symbols only, and `cross`, `heads` and `factored` in words: there the
numbers are ours.
"""

from dataclasses import replace

import numpy as np

from qkv.errors import UsageError, unknown
from qkv.interpret.matrix import Matrix
from qkv.interpret.worksheet import AnswerMatrix, Worksheet


def _matrix(*rows: tuple[float, ...]) -> Matrix:
    return np.array(rows, dtype=np.float64)


_X = _matrix((1.16, 0.23), (0.57, 1.36), (4.41, -2.16))
_W_Q = _matrix((0.54, -0.17), (0.59, 0.65))
_W_K = _matrix((-0.15, -0.34), (0.14, 0.42))
_W_V = _matrix((0.62, 0.61), (-0.52, 0.13))
_TOKENS = ("write", "a", "poem")

POEM = Worksheet(
    title='Self-attention for "Write a poem"',
    tokens=_TOKENS,
    matrices={"x": _X, "w_q": _W_Q, "w_k": _W_K, "w_v": _W_V},
)

# Q, K and V as the notes print them, mistakes included; the last row of V cannot be read.
NOTES_ANSWERS = {
    "q": AnswerMatrix(_matrix((0.76, -0.05), (1.11, 0.79), (0.11, -2.15)), 2),
    "k": AnswerMatrix(_matrix((-0.14, -0.36), (-0.1, 0.38), (-0.96, -2.41)), 2),
    "v": AnswerMatrix(_matrix((0.60, 0.74), (-0.35, 0.52), (np.nan, np.nan)), 2),
}
NOTES_PERCENT = 36  # their conclusion: 'The word "write" is 36% similar to itself.'

_COLUMN = _matrix((1.0,), (0.5,), (-2.0,))

EXAMPLES = {
    "poem": POEM,
    "same": Worksheet(
        title="Q = K = V: three words of one number, and the table of all their similarities",
        tokens=("v₁", "v₂", "v₃"),
        matrices={"q": _COLUMN, "k": _COLUMN, "v": _COLUMN},
    ),
    "cross": Worksheet(
        title='Cross attention: "ein Gedicht" reads "Write a poem"',
        tokens=("ein", "Gedicht"),
        source=_TOKENS,
        matrices={
            "x": _matrix((0.31, 1.12), (3.87, -1.54)),
            "source_x": _X,
            "w_q": _W_Q,
            "w_k": _W_K,
            "w_v": _W_V,
        },
    ),
    "heads": Worksheet(
        title="Two heads, each with its own weights, side by side",
        tokens=_TOKENS,
        heads=2,
        matrices={
            "x": _X,
            "w_q": np.hstack([_W_Q, _matrix((0.25, 0.4), (-0.3, 0.1))]),
            "w_k": np.hstack([_W_K, _matrix((0.2, -0.5), (0.6, 0.35))]),
            "w_v": np.hstack([_W_V, _matrix((-0.45, 0.3), (0.15, 0.7))]),
        },
    ),
    "factored": Worksheet(
        title="The value matrix in two factors: V = X · V_down · V_up",
        tokens=_TOKENS,
        matrices={
            "x": _matrix(
                (1.2, 0.2, -0.4, 0.9, 0.1, -0.7),
                (0.6, 1.4, 0.3, -0.2, 0.8, 0.5),
                (2.1, -1.1, 0.7, 0.4, -0.6, 1.3),
            ),
            "w_q": _matrix((0.5, 0.6, 0.1, -0.4, 0.3, 0.2), (-0.2, 0.7, 0.3, 0.2, 0.1, -0.5)).T,
            "w_k": _matrix((-0.2, 0.1, 0.5, 0.3, -0.6, 0.4), (-0.3, 0.4, 0.2, -0.1, 0.2, 0.3)).T,
            "v_down": _matrix((0.6, -0.5, 0.3, 0.2, 0.1, -0.2), (0.1, 0.2, 0.4, -0.3, 0.5, 0.6)).T,
            "v_up": _matrix(
                (0.4, -0.1, 0.3, 0.2, -0.5, 0.6),
                (0.1, 0.7, -0.2, 0.5, 0.3, -0.4),
            ),
        },
    ),
}


def example(name: str) -> Worksheet:
    """The example of this name; a UsageError lists the names there are."""
    if name not in EXAMPLES:
        raise UsageError(unknown("example", name, EXAMPLES))
    return EXAMPLES[name]


def notes_worksheet() -> Worksheet:
    """The poem with the matrices that the notes print for it as answers to check."""
    return replace(POEM, title="The worked example beside the notes", answers=NOTES_ANSWERS)
