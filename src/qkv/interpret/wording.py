"""What each step is called, its equation, and one plain sentence about its numbers."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from qkv.interpret.matrix import Matrix
from qkv.interpret.operation import DividedByRoot, Operation, Sentence, Similarity, Step, UserWord
from qkv.interpret.worksheet import Worksheet

# name: title, equation, the same in LaTeX
_NAMES = {
    "x": ("The words as numbers", "X", "X"),
    "source_x": ("The words that are read, as numbers", "X_source", r"X_{\text{source}}"),
    "w_q": ("Query weights", "W_Q", "W_Q"),
    "w_k": ("Key weights", "W_K", "W_K"),
    "w_v": ("Value weights", "W_V", "W_V"),
    "v_down": ("Value weights, first factor", "V_down", r"V_{\text{down}}"),
    "v_up": ("Value weights, second factor", "V_up", r"V_{\text{up}}"),
    "v_narrow": ("Values in the narrow space", "X · V_down", r"X V_{\text{down}}"),
    "q": ("Queries", "Q = X · W_Q", "Q = X W_Q"),
    "k": ("Keys", "K = X · W_K", "K = X W_K"),
    "v": ("Values", "V = X · W_V", "V = X W_V"),
    "scores": ("Scores", "Q · Kᵀ", r"Q K^\top"),
    "scaled": ("Scaled scores", "Q · Kᵀ ÷ √d_k", r"Q K^\top / \sqrt{d_k}"),
    "mask": ("The mask", "M", "M"),
    "masked": ("Masked scores", "{scores} + M", "{scores} + M"),
    "weights": ("Attention weights", "softmax({scores})", r"\mathrm{{softmax}}({scores})"),
    "output": ("Output", "softmax(…) · V", r"\mathrm{softmax}(\ldots)\, V"),
    "w_o": ("Output weights", "W_O", "W_O"),
    "projected": ("Output through W_O", "Output · W_O", r"\mathrm{Output}\; W_O"),
}


def word(
    name: str,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    value: Matrix,
    made_by: Operation,
    sheet: Worksheet,
) -> Step:
    """The step with its title, equation and sentence."""
    head, _, base = name.rpartition(".")
    title, equation, latex = _NAMES[base]
    equation, latex = _equations(base, equation, latex, made_by, sheet)
    if head:
        title = f"Head {head.removeprefix('head')}: {title.lower()}"
    elif base == "output" and sheet.heads > 1:
        title, equation, latex = _joined(sheet.heads)
    sentence = _SENTENCES[base](_Said(rows, columns, value, made_by, sheet))
    grid = base in ("scores", "scaled", "mask", "masked", "weights")
    by_word = rows and base not in ("w_q", "w_k", "w_v", "v_down", "v_up", "w_o")
    axes = ("query", "key") if grid else ("word" if by_word else "", "")
    return Step(name, title, equation, latex, rows, columns, value, made_by, sentence, axes)


class _Said(NamedTuple):
    """What a sentence may speak of."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: Matrix
    made_by: Operation
    sheet: Worksheet


def _equations(
    base: str, equation: str, latex: str, made_by: Operation, sheet: Worksheet
) -> tuple[str, str]:
    """The step's equation in both notations, for this worksheet's way of computing it."""
    if base in ("q", "k", "v") and not made_by.inputs:
        return base.upper(), base.upper()
    if base == "v" and sheet.has("v_down"):
        equation, latex = "V = X · V_down · V_up", r"V = X V_{\text{down}} V_{\text{up}}"
    if base in ("k", "v", "v_narrow") and sheet.source is not None:
        equation = equation.replace("X", "X_source")
        latex = latex.replace("X", r"X_{\text{source}}")
    if base in ("masked", "weights"):
        plain, math = _NAMES["scaled" if sheet.scaled else "scores"][1:]
        hidden = " + M" if base == "weights" and sheet.causal else ""
        equation, latex = (
            equation.format(scores=plain + hidden),
            latex.format(scores=math + hidden),
        )
    return equation, latex


def _joined(heads: int) -> tuple[str, str, str]:
    names = ", ".join(f"head {i + 1}" for i in range(heads))
    math = ", ".join(rf"\mathrm{{head}}_{i + 1}" for i in range(heads))
    return "Output, all heads side by side", f"concat({names})", rf"\mathrm{{concat}}({math})"


def _x(said: _Said) -> Sentence:
    return (f"Each word is a row of {_numbers(len(said.columns))}.",)


def _weights_matrix(said: _Said) -> Sentence:
    n, m = len(said.rows), len(said.columns)
    return (f"Turns the {_numbers(n)} of a word into {m}.",)


def _q(said: _Said) -> Sentence:
    return (f"Each row is the question a word asks, in {_numbers(len(said.columns))}.",)


def _k(said: _Said) -> Sentence:
    return (f"Each row is what a word answers to, in {_numbers(len(said.columns))}.",)


def _v(said: _Said) -> Sentence:
    return (f"Each row is what a word passes on, in {_numbers(len(said.columns))}.",)


def _v_up(said: _Said) -> Sentence:
    down, up = said.sheet.matrices["v_down"], said.sheet.matrices["v_up"]
    wide, rank, out = down.shape[0], down.shape[1], up.shape[1]
    return (
        f"The two factors hold {wide}·{rank} + {rank}·{out} = {down.size + up.size} numbers; "
        f"one matrix W_V would hold {wide}·{out} = {wide * out}.",
    )


def _v_narrow(said: _Said) -> Sentence:
    rank = len(said.columns)
    return (f"Every word is squeezed into {_numbers(rank)} before it is widened again.",)


def _scores(said: _Said) -> Sentence:
    assert isinstance(said.made_by, Similarity)
    head = said.made_by.head
    split = f"Columns {head.start + 1} to {head.stop} of Q and K. " if said.sheet.heads > 1 else ""
    best = int(np.argmax(said.value[0]))
    query, key = said.rows[0], said.columns[best]
    other: Sentence = ("itself",) if query == key else (UserWord(key),)
    start = f"{split}How well each query matches each key; "
    return (start, UserWord(query), " matches ", *other, " best.")


def _scaled(said: _Said) -> Sentence:
    assert isinstance(said.made_by, DividedByRoot)
    d_k = said.made_by.d_k
    return (f"Every score is divided by √d_k = √{d_k}, so that its spread does not grow with d_k.",)


def _mask(said: _Said) -> Sentence:
    if said.sheet.source is not None:
        return ("0 where a query may look, −∞ where not; the last query stands at the last key.",)
    return ("0 where a query may look, −∞ where it may not: no word sees a later one.",)


def _masked(said: _Said) -> Sentence:
    return ("A hidden score becomes −∞, and e^−∞ = 0: it will get no weight at all.",)


def _weights(said: _Said) -> Sentence:
    sees = said.value.any(axis=1)
    if not sees.any():
        return ("No query sees any key, so no weight is given.",)
    first = int(np.argmax(sees))
    query, row = said.rows[first], said.value[first]
    own = said.columns.index(query) if query in said.columns else int(np.argmax(row))
    to: Sentence = ("itself",) if said.columns[own] == query else (UserWord(said.columns[own]),)
    rest = "every row sums to 1." if sees.all() else "every row that sees a key sums to 1."
    return (
        UserWord(query),
        f" gives {100 * row[own]:.0f} % of its attention to ",
        *to,
        f"; {rest}",
    )


def _output(said: _Said) -> Sentence:
    return ("Each word is now the mean of the values, weighted by its attention.",)


def _projected(said: _Said) -> Sentence:
    return (f"What was found, turned into {_numbers(len(said.columns))} a word.",)


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"


_SENTENCES: dict[str, Callable[[_Said], Sentence]] = {
    "x": _x,
    "source_x": _x,
    "w_q": _weights_matrix,
    "w_k": _weights_matrix,
    "w_v": _weights_matrix,
    "v_down": _weights_matrix,
    "v_up": _v_up,
    "v_narrow": _v_narrow,
    "q": _q,
    "k": _k,
    "v": _v,
    "scores": _scores,
    "scaled": _scaled,
    "mask": _mask,
    "masked": _masked,
    "weights": _weights,
    "output": _output,
    "w_o": _weights_matrix,
    "projected": _projected,
}
