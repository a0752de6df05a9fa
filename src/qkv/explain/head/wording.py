"""What each step of a trained head is called, its equation, and one sentence about it."""

import numpy as np

from qkv.explain.head.operation import Multiplied
from qkv.explain.head.place import Place
from qkv.explain.matrix import Matrix, columns
from qkv.explain.operation import DividedByRoot, Operation, Similarity
from qkv.explain.step import Sentence, Step, Word

# name: title, equation, LaTeX, sentence
_SAYINGS: dict[str, tuple[str, str, str, str]] = {
    "x": ("What goes in", "X", "X", "Each row is what the layers below made of a position."),
    "source_x": ("What is read", "M", "M", "Each row is what the encoder made of a position."),
    "q": ("Queries", "Q = X · W_Q", "Q = X W_Q", "Each row is the question a position asks."),
    "k": ("Keys", "K = X · W_K", "K = X W_K", "Each row is what a position answers to."),
    "v": ("Values", "V = X · W_V", "V = X W_V", "Each row is what a position passes on."),
    "v_narrow": ("Values in the narrow space", "X · V_down", r"X V_{\downarrow}", ""),
    "cos": ("Cosines of the positions", "cos(position × speed)", r"\cos", "How far to turn."),
    "sin": ("Sines of the positions", "sin(position × speed)", r"\sin", "How far to turn."),
    "scores": ("Scores", "Q · Kᵀ", r"Q K^\top", ""),
    "scaled": ("Scaled scores", "scores ÷ √d_k", r"Q K^\top / \sqrt{d_k}", ""),
    "capped": ("Capped scores", "cap · tanh(scaled ÷ cap)", r"c \tanh(\cdot / c)", ""),
    "bias": ("What distances add", "bias", "B", "A number for each distance from query to key."),
    "biased": ("Scores with distances", "scores + bias", r"\cdot + B", ""),
    "mask": ("The mask", "M", "M", "0 where a query may look, −∞ where it may not."),
    "masked": (
        "Masked scores",
        "scores + M",
        r"\cdot + M",
        "A hidden score becomes −∞, and e^−∞ = 0: it will get no weight at all.",
    ),
    "weights": ("Attention weights", "softmax", r"\mathrm{softmax}(\cdot)", ""),
    "output": (
        "Output of the head",
        "weights · V",
        "A V",
        "Each position is now the mean of the values, weighted by its attention.",
    ),
}
_SIDES = {"q": "Query", "k": "Key", "v": "Value"}
_GRIDS = ("scores", "scaled", "capped", "bias", "biased", "mask", "masked", "weights")


def word(
    name: str,
    rows: tuple[str, ...],
    named: tuple[str, ...],
    value: Matrix,
    made_by: Operation,
    over: str,
    place: Place,
) -> Step:
    """The step with its title, equation and sentence; columns without names are numbered."""
    title, equation, latex, said = _SAYINGS.get(name) or _of_side(name)
    if len(made_by.inputs) == 3 and name in _SIDES:
        equation, latex = f"{equation} + b", f"{latex} + b"
    if name in ("k", "v") and place.part == "cross":
        equation, latex = equation.replace("X", "M"), latex.replace("X", "M")
    if isinstance(made_by, DividedByRoot):
        equation, said = f"scores ÷ √{made_by.d_k}", f"Every score is divided by √{made_by.d_k}."
    if isinstance(made_by, Multiplied):
        factor = f"{made_by.factor:.6g}"
        equation, latex = f"scores × {factor}", rf"{factor}\, Q K^\top"
        said = f"This model multiplies every score by {factor}."
    sentence: Sentence = (said,)
    if isinstance(made_by, Similarity) or name == "weights":
        sentence = _looks(name, rows, named, value)
    grid = name in _GRIDS
    letter = "o" if name == "output" else name[-1] if name[1:2] == "_" else name[0]
    axes = (
        ("query", "key")
        if grid
        else (over if not name.startswith(("w_", "v_d", "v_u")) else "", "")
    )
    return Step(
        name,
        title,
        equation,
        latex,
        rows,
        named or columns(letter, value.shape[1]),
        value,
        made_by,
        sentence,
        axes,
    )


def _of_side(name: str) -> tuple[str, str, str, str]:
    """Weights, biases, norms and turned vectors of queries, keys or values."""
    kind, _, letter = name.partition("_")
    if letter in _SIDES:
        side = _SIDES[letter]
        titles = {
            "w": f"{side} weights",
            "b": f"{side} bias",
            "x": f"The slice for {side.lower()}s",
        }
        titles |= {"gain": f"{side} gain", "shift": f"{side} shift"}
        return titles.get(kind, name), name.upper(), name, "Learned in training."
    if kind in _SIDES:
        done = {"normed": "brought to size", "turned": "turned by position"}.get(letter, letter)
        title = f"{'Queries' if kind == 'q' else 'Keys'}, {done}"
        said = {"turned": "Now a product of two depends on how far apart they stand."}.get(
            letter, ""
        )
        return title, f"{kind.upper()} {letter}", kind.upper(), said
    return name, name, r"\mathrm{" + name.replace("_", r"\_") + "}", ""


def _looks(name: str, rows: tuple[str, ...], keys: tuple[str, ...], value: Matrix) -> Sentence:
    """What the last query finds."""
    best = int(np.argmax(value[-1]))
    query = Word(rows[-1])
    if name == "scores":
        return (
            "How well each query matches each key; ",
            query,
            " matches ",
            Word(keys[best]),
            " best.",
        )
    share = f" gives {100 * value[-1, best]:.0f} % of its attention to "
    return (query, share, Word(keys[best]), "; every row sums to 1.")
