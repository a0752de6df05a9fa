"""The title, equation and sentence of each step of a trained head.

The sentences are for learners and keep to plain words.
"""

from typing import NamedTuple

import numpy as np

from qkv.interpret.matrix import Matrix, column_labels
from qkv.interpret.step import Sentence, UserWord, WalkStep
from qkv.interpret.trace.operations import MatMul, Operation, ScaleScores, Scores


class _Words(NamedTuple):
    """What a step is called and how it is explained."""

    title: str
    equation: str
    latex: str
    sentence: str


_STEPS = {
    "x": _Words("What goes in", "X", "X", "Each row is what the layers below made of a position."),
    "source_x": _Words(
        "What is read", "M", "M", "Each row is what the encoder made of a position."
    ),
    "q": _Words("Queries", "Q = X · W_Q", "Q = X W_Q", "Each row is the question a position asks."),
    "k": _Words("Keys", "K = X · W_K", "K = X W_K", "Each row is what a position answers to."),
    "v": _Words("Values", "V = X · W_V", "V = X W_V", "Each row is what a position passes on."),
    "v_narrow": _Words("Values in the narrow space", "X · V_down", r"X V_{\downarrow}", ""),
    "cos": _Words("Cosines of the positions", "cos(position × speed)", r"\cos", "How far to turn."),
    "sin": _Words("Sines of the positions", "sin(position × speed)", r"\sin", "How far to turn."),
    "scores": _Words("Scores", "Q · Kᵀ", r"Q K^\top", ""),
    "scaled": _Words("Scaled scores", "scores ÷ √d_k", r"Q K^\top / \sqrt{d_k}", ""),
    "capped": _Words("Capped scores", "cap · tanh(scaled ÷ cap)", r"c \tanh(\cdot / c)", ""),
    "bias": _Words(
        "What distances add", "bias", "B", "A number for each distance from query to key."
    ),
    "biased": _Words("Scores with distances", "scores + bias", r"\cdot + B", ""),
    "mask": _Words("The mask", "M", "M", "0 where a query may look, −∞ where it may not."),
    "masked": _Words(
        "Masked scores",
        "scores + M",
        r"\cdot + M",
        "A hidden score becomes −∞, and e^−∞ = 0: it will get no weight at all.",
    ),
    "weights": _Words("Attention weights", "softmax", r"\mathrm{softmax}(\cdot)", ""),
    "output": _Words(
        "Output of the head",
        "weights · V",
        "A V",
        "Each position is now the mean of the values, weighted by its attention.",
    ),
}

_SIDES = {"q": "Query", "k": "Key", "v": "Value"}

# A row per query and a column per key.
_GRIDS = ("scores", "scaled", "capped", "bias", "biased", "mask", "masked", "weights")


def describe(
    name: str,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    value: Matrix,
    operation: Operation,
    inputs: tuple[str, ...],
    row_axis: str,
    cross: bool,
) -> WalkStep:
    """The step with its title, equation and sentence; columns without labels are numbered.

    row_axis: what the rows of a matrix of features are, query or key. cross: whether keys and
    values come from the encoder.
    """
    words = _STEPS.get(name) or _words_of_side(name)
    title, equation, latex, text = words
    if isinstance(operation, MatMul) and operation.bias:
        equation = f"{equation} + b"
        latex = f"{latex} + b"
    # M is the memory, the output of the encoder.
    if name in ("k", "v") and cross:
        equation = equation.replace("X", "M")
        latex = latex.replace("X", "M")
    if isinstance(operation, ScaleScores):
        equation = operation.equation
        if operation.divides_by_root:
            text = f"Every score is divided by √{operation.d_k}."
        else:
            factor = f"{operation.factor:.6g}"
            equation = f"scores × {factor}"
            latex = rf"{factor}\, Q K^\top"
            text = f"This model multiplies every score by {factor}."
    sentence: Sentence = (text,)
    if isinstance(operation, Scores) or name == "weights":
        sentence = _best_match(name, rows, columns, value)
    if not columns:
        columns = column_labels(_column_letter(name), value.shape[1])
    if name in _GRIDS:
        axes = ("query", "key")
    elif name.startswith(("w_", "v_down", "v_up")):
        axes = ("", "")
    else:
        axes = (row_axis, "")
    return WalkStep(
        name=name,
        title=title,
        equation=equation,
        latex=latex,
        rows=rows,
        columns=columns,
        value=value,
        operation=operation,
        inputs=inputs,
        sentence=sentence,
        axes=axes,
    )


def _column_letter(name: str) -> str:
    """Features are numbered q1, q2, …, after the vectors they belong to."""
    if name == "output":
        return "o"
    if name[1:2] == "_":  # w_q, b_q, but also v_up, whose columns are p1, p2, …
        return name[-1]
    return name[0]


def _words_of_side(name: str) -> _Words:
    """Weights, biases, norms and rotated vectors of queries, keys or values."""
    kind, _, rest = name.partition("_")
    if rest in _SIDES:
        side = _SIDES[rest]
        titles = {
            "w": f"{side} weights",
            "b": f"{side} bias",
            "x": f"The slice for {side.lower()}s",
            "gain": f"{side} gain",
            "shift": f"{side} shift",
        }
        return _Words(titles.get(kind, name), name.upper(), name, "Learned in training.")
    if kind in _SIDES:
        vectors = "Queries" if kind == "q" else "Keys"
        equation = f"{kind.upper()} {rest}"
        if rest == "normed":
            return _Words(f"{vectors}, brought to size", equation, kind.upper(), "")
        if rest == "turned":
            text = "Now a product of two depends on how far apart they stand."
            return _Words(f"{vectors}, turned by position", equation, kind.upper(), text)
        return _Words(f"{vectors}, {rest}", equation, kind.upper(), "")
    return _Words(name, name, r"\mathrm{" + name.replace("_", r"\_") + "}", "")


def _best_match(name: str, rows: tuple[str, ...], keys: tuple[str, ...], value: Matrix) -> Sentence:
    """The key that the last query matches best, or attends to most."""
    best = int(np.argmax(value[-1]))
    query = UserWord(rows[-1])
    key = UserWord(keys[best])
    if name == "scores":
        return ("How well each query matches each key; ", query, " matches ", key, " best.")
    percent = f" gives {100 * value[-1, best]:.0f} % of its attention to "
    return (query, percent, key, "; every row sums to 1.")
