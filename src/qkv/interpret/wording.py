"""The title, equation and sentence of each step of a worksheet.

The sentences are for learners and keep to plain words.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from qkv.interpret.matrix import Matrix
from qkv.interpret.step import Sentence, UserWord, WalkStep
from qkv.interpret.trace.operations import HeadScores, Operation, ScaleScores
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

_GRIDS = ("scores", "scaled", "mask", "masked", "weights")  # a row per query, a column per key
_PARAMETERS = ("w_q", "w_k", "w_v", "v_down", "v_up", "w_o")


class _Context(NamedTuple):
    """What a sentence may refer to."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: Matrix
    operation: Operation
    sheet: Worksheet


def describe(
    name: str,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    value: Matrix,
    operation: Operation,
    inputs: tuple[str, ...],
    sheet: Worksheet,
) -> WalkStep:
    """The step with its title, equation and sentence."""
    head, _, base = name.rpartition(".")
    title = _NAMES[base][0]
    equation, latex = _equations(base, not inputs, sheet)
    if head:
        title = f"Head {head.removeprefix('head')}: {title.lower()}"
    elif base == "output" and sheet.heads > 1:
        title, equation, latex = _concatenation(sheet.heads)
    if base in _GRIDS:
        axes = ("query", "key")
    elif rows and base not in _PARAMETERS:
        axes = ("word", "")
    else:
        axes = ("", "")
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
        sentence=_SENTENCES[base](_Context(rows, columns, value, operation, sheet)),
        axes=axes,
    )


def _equations(base: str, is_input: bool, sheet: Worksheet) -> tuple[str, str]:
    """The step's equation as text and as LaTeX, for the way this worksheet computes it."""
    _, equation, latex = _NAMES[base]
    if base in ("q", "k", "v") and is_input:
        return base.upper(), base.upper()
    if base == "v" and sheet.has("v_down"):
        equation = "V = X · V_down · V_up"
        latex = r"V = X V_{\text{down}} V_{\text{up}}"
    if base in ("k", "v", "v_narrow") and sheet.source is not None:
        equation = equation.replace("X", "X_source")
        latex = latex.replace("X", r"X_{\text{source}}")
    # The mask is added to the scores, scaled or not; the softmax is taken of the sum.
    if base in ("masked", "weights"):
        _, scores, scores_latex = _NAMES["scaled" if sheet.scaled else "scores"]
        if base == "weights" and sheet.causal:
            scores += " + M"
            scores_latex += " + M"
        equation = equation.format(scores=scores)
        latex = latex.format(scores=scores_latex)
    return equation, latex


def _concatenation(heads: int) -> tuple[str, str, str]:
    """Title, equation and LaTeX of several heads next to each other."""
    numbers = range(1, heads + 1)
    names = ", ".join(f"head {number}" for number in numbers)
    latex = ", ".join(rf"\mathrm{{head}}_{number}" for number in numbers)
    return "Output, all heads side by side", f"concat({names})", rf"\mathrm{{concat}}({latex})"


def _x(context: _Context) -> Sentence:
    return (f"Each word is a row of {_numbers(len(context.columns))}.",)


def _weight_matrix(context: _Context) -> Sentence:
    width = _numbers(len(context.rows))
    return (f"Turns the {width} of a word into {len(context.columns)}.",)


def _q(context: _Context) -> Sentence:
    return (f"Each row is the question a word asks, in {_numbers(len(context.columns))}.",)


def _k(context: _Context) -> Sentence:
    return (f"Each row is what a word answers to, in {_numbers(len(context.columns))}.",)


def _v(context: _Context) -> Sentence:
    return (f"Each row is what a word passes on, in {_numbers(len(context.columns))}.",)


def _v_up(context: _Context) -> Sentence:
    down = context.sheet.matrices["v_down"]
    up = context.sheet.matrices["v_up"]
    width, rank = down.shape
    out = up.shape[1]
    return (
        f"The two factors hold {width}·{rank} + {rank}·{out} = {down.size + up.size} numbers; "
        f"one matrix W_V would hold {width}·{out} = {width * out}.",
    )


def _v_narrow(context: _Context) -> Sentence:
    rank = _numbers(len(context.columns))
    return (f"Every word is squeezed into {rank} before it is widened again.",)


def _scores(context: _Context) -> Sentence:
    start = "How well each query matches each key; "
    if context.sheet.heads > 1:
        assert isinstance(context.operation, HeadScores)
        first = context.operation.start + 1
        start = f"Columns {first} to {context.operation.stop} of Q and K. {start}"
    query = context.rows[0]
    key = context.columns[int(np.argmax(context.value[0]))]
    return (start, UserWord(query), " matches ", _word_or_itself(key, query), " best.")


def _scaled(context: _Context) -> Sentence:
    assert isinstance(context.operation, ScaleScores)
    d_k = context.operation.d_k
    return (f"Every score is divided by √d_k = √{d_k}, so that its spread does not grow with d_k.",)


def _mask(context: _Context) -> Sentence:
    T = len(context.rows)
    S = len(context.columns)
    if context.sheet.source is None:
        return ("0 where a query may look, −∞ where it may not: no word sees a later one.",)
    start = "0 where a query may look, −∞ where it may not; the last query stands at the last key"
    if T == S:
        return (f"{start}, so query i sees keys 1 to i.",)
    queries = "1 query" if T == 1 else f"{T} queries"
    keys = "1 key" if S == 1 else f"{S} keys"
    aligned = f"{start}: with {queries} and {keys}, query i sees keys 1 to i"
    if T < S:
        return (f"{aligned} + {S - T}.",)
    blind = "query sees" if T - S == 1 else f"{T - S} queries see"
    return (f"{aligned} − {T - S}, and the first {blind} none.",)


def _masked(context: _Context) -> Sentence:
    return ("A hidden score becomes −∞, and e^−∞ = 0: it will get no weight at all.",)


def _weights(context: _Context) -> Sentence:
    """The first query that sees a key: its weight on itself, or its largest one."""
    attends = context.value.any(axis=1)
    if not attends.any():
        return ("No query sees any key, so no weight is given.",)
    first = int(np.argmax(attends))
    query = context.rows[first]
    weights = context.value[first]
    key = int(np.argmax(weights))
    if query in context.columns:
        key = context.columns.index(query)
    sums = "every row sums to 1."
    if not attends.all():
        sums = "every row that sees a key sums to 1."
    return (
        UserWord(query),
        f" gives {100 * weights[key]:.0f} % of its attention to ",
        _word_or_itself(context.columns[key], query),
        f"; {sums}",
    )


def _output(context: _Context) -> Sentence:
    return ("Each word is now the mean of the values, weighted by its attention.",)


def _projected(context: _Context) -> Sentence:
    return (f"What was found, turned into {_numbers(len(context.columns))} a word.",)


def _word_or_itself(word: str, query: str) -> str:
    if word == query:
        return "itself"
    return UserWord(word)


def _numbers(count: int) -> str:
    if count == 1:
        return "1 number"
    return f"{count} numbers"


_SENTENCES: dict[str, Callable[[_Context], Sentence]] = {
    "x": _x,
    "source_x": _x,
    "w_q": _weight_matrix,
    "w_k": _weight_matrix,
    "w_v": _weight_matrix,
    "v_down": _weight_matrix,
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
    "w_o": _weight_matrix,
    "projected": _projected,
}
