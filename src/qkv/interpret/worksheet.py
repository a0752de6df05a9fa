"""A worksheet: somebody's own words and matrices, read from TOML and checked field by field."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from qkv.errors import WorksheetError, unknown
from qkv.interpret.matrix import Matrix, format_shape

TEMPLATE = """\
# A worksheet for `qkv explain --worksheet FILE`. Change any number, word or size.
tokens = ["write", "a", "poem"]

# One row a word: its embedding with its position.
x = [
    [1.16, 0.23],
    [0.57, 1.36],
    [4.41, -2.16],
]

# x times each of these gives queries, keys and values. Instead of x and the weights,
# q, k and v may be given directly.
w_q = [[0.54, -0.17], [0.59, 0.65]]
w_k = [[-0.15, -0.34], [0.14, 0.42]]
w_v = [[0.62, 0.61], [-0.52, 0.13]]

# mask = "causal"        # no word sees a later one
# heads = 2              # split the columns of q, k and v into heads
# scale = false          # leave the division by √d_k out
# source = ["ein", "Wort"]   # cross attention: keys and values come from these words,
# source_x = [[…], […]]      # one row each

# Your own results, to be checked. Each matrix is held to the decimals it is written with,
# two at least.
[answers]
q = [[0.76, -0.05], [1.11, 0.79], [1.11, -2.15]]
"""

_MATRICES = ("x", "source_x", "w_q", "w_k", "w_v", "v_down", "v_up", "q", "k", "v", "w_o")
_OTHERS = ("title", "tokens", "source", "mask", "heads", "scale", "answers")


@dataclass(frozen=True)
class AnswerMatrix:
    """A matrix as somebody wrote it; NaN where nothing can be read."""

    value: Matrix
    decimals: int


@dataclass(frozen=True)
class Worksheet:
    """Everything one attention is computed from. Either x with weights, or q, k, v themselves."""

    tokens: tuple[str, ...]
    title: str = ""
    source: tuple[str, ...] | None = None  # the words keys and values come from, if others
    matrices: Mapping[str, Matrix] = field(default_factory=dict)
    causal: bool = False
    heads: int = 1
    scaled: bool = True
    answers: Mapping[str, AnswerMatrix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.tokens if self.source is None else self.source

    def has(self, *names: str) -> bool:
        return all(name in self.matrices for name in names)


def read_worksheet(path: Path) -> Worksheet:
    """The worksheet in that file; what is wrong with it is said in one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise WorksheetError(f"cannot read {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise WorksheetError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return parse_worksheet(text)
    except WorksheetError as error:
        raise WorksheetError(f"{path}: {error}") from None


def parse_worksheet(text: str) -> Worksheet:
    try:
        fields = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise WorksheetError(f"not valid TOML: {error}") from None
    except RecursionError:
        raise WorksheetError("not valid TOML: nested too deeply") from None
    for name in fields:
        if name not in (*_MATRICES, *_OTHERS):
            raise WorksheetError(unknown("field", name, (*_MATRICES, *_OTHERS)))
    return Worksheet(
        tokens=_words(fields, "tokens"),
        title=" ".join(str(fields.get("title", "")).split()),
        source=_words(fields, "source") if "source" in fields else None,
        matrices={name: _matrix(name, fields[name])[0] for name in _MATRICES if name in fields},
        causal=_mask(fields.get("mask", "none")),
        heads=_heads(fields.get("heads", 1)),
        scaled=_scale(fields.get("scale", True)),
        answers=_answers(fields.get("answers", {})),
    )


def _words(fields: dict[str, Any], name: str) -> tuple[str, ...]:
    words = fields.get(name)
    if words is None:
        raise WorksheetError(f'{name} is missing; name the words, as in {name} = ["write", "a"]')
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise WorksheetError(f'{name} must be a list of words, as in {name} = ["write", "a"]')
    return tuple(words)


def _mask(value: Any) -> bool:
    if value not in ("causal", "none"):
        raise WorksheetError(f'mask must be "causal" or "none", not {value!r}')
    return bool(value == "causal")


def _heads(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WorksheetError(f"heads must be a whole number of 1 or more, not {value}")
    return value


def _scale(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WorksheetError(f"scale must be true or false, not {value}")
    return value


def _answers(value: Any) -> dict[str, AnswerMatrix]:
    if not isinstance(value, dict):
        raise WorksheetError("answers must be a table of matrices, as in [answers] q = [[…]]")
    return {
        name: AnswerMatrix(*_matrix(f"answers.{name}", rows, infinite=True))
        for name, rows in value.items()
    }


def _matrix(name: str, rows: Any, infinite: bool = False) -> tuple[Matrix, int]:
    """The matrix and the most decimals any of its numbers is written with."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise WorksheetError(
            f"{name} must be a list of rows, as in {name} = [[1.0, 2.0], [3.0, 4]]"
        )
    widths = [len(row) for row in rows]
    if not all(widths):
        raise WorksheetError(f"{name} has a row without numbers")
    if len(set(widths)) > 1:
        raise WorksheetError(f"{name} has rows of {_listed(widths)} numbers; all need equally many")
    most = 0
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            _check_number(f"{name} row {i + 1}, column {j + 1}", cell, infinite)
            if isinstance(cell, Decimal) and cell.is_finite():
                most = max(most, -int(cell.as_tuple().exponent))
    return np.array([[float(cell) for cell in row] for row in rows], dtype=np.float64), most


def _check_number(place: str, cell: Any, infinite: bool) -> None:
    if isinstance(cell, bool) or not isinstance(cell, int | Decimal):
        raise WorksheetError(f"{place} is {_toml(cell)}, which is not a number")
    try:
        number = float(cell)
    except OverflowError:
        number = float("inf")
    if np.isnan(number) or (np.isinf(number) and not infinite):
        raise WorksheetError(f"{place} is {_short(cell)}; a finite number is needed")


def _toml(cell: Any) -> str:
    """As it stands in the file."""
    return str(cell).lower() if isinstance(cell, bool) else repr(cell)


def _short(cell: Any) -> str:
    text = str(cell)
    return text if len(text) <= 24 else f"{text[:20]}…, a number of {len(text)} digits"


def _listed(widths: list[int]) -> str:
    return " and ".join(dict.fromkeys(map(str, widths)))


def _check(sheet: Worksheet) -> None:
    """Everything is there once, and every product has matching sizes."""
    _check_once(sheet)
    _check_complete(sheet)
    m = sheet.matrices
    inputs = "source_x" if sheet.source is not None else "x"
    for name, words, said in (
        ("x", sheet.tokens, "tokens"),
        ("source_x", sheet.keys, "source"),
        ("q", sheet.tokens, "tokens"),
        ("k", sheet.keys, "tokens" if sheet.source is None else "source"),
        ("v", sheet.keys, "tokens" if sheet.source is None else "source"),
    ):
        if name in m and len(m[name]) != len(words):
            raise WorksheetError(
                f"{name} is {format_shape(m[name])} but {said} has {len(words)} "
                f"{'word' if len(words) == 1 else 'words'}; {name} needs one row a word"
            )
    for left, right in (
        ("x", "w_q"),
        (inputs, "w_k"),
        (inputs, "w_v"),
        (inputs, "v_down"),
        ("v_down", "v_up"),
    ):
        if left in m and right in m and m[left].shape[1] != m[right].shape[0]:
            raise WorksheetError(
                f"{left} is {format_shape(m[left])} and {right} is {format_shape(m[right])}; "
                f"to multiply them, {right} needs {m[left].shape[1]} rows"
            )
    _check_heads(sheet)


def _check_once(sheet: Worksheet) -> None:
    """Nothing is given that another field already says."""
    for one, others in (
        ("q", ("w_q",)),
        ("k", ("w_k",)),
        ("v", ("w_v", "v_down", "v_up")),
        ("w_v", ("v_down", "v_up")),
    ):
        for other in others:
            if sheet.has(one, other):
                raise WorksheetError(f"{one} and {other} are both given; keep one of them")
    for name, makes in (("x", "qkv"), ("source_x", "kv")):
        if sheet.has(name, *makes):
            raise WorksheetError(f"{name} is given, but {', '.join(makes)} are given directly")


def _check_complete(sheet: Worksheet) -> None:
    cross = sheet.source is not None
    if cross != sheet.has("source_x") and not (cross and sheet.has("k", "v")):
        missing = "source_x" if cross else "source"
        raise WorksheetError(f"{missing} is missing; cross attention needs source and source_x")
    inputs = "source_x" if cross else "x"
    factored = sheet.has("v_down") or sheet.has("v_up")
    value_weights = ("v_down", "v_up") if factored else ("w_v",)
    for made, needed in (
        ("q", ("x", "w_q")),
        ("k", (inputs, "w_k")),
        ("v", (inputs, *value_weights)),
    ):
        if made in sheet.matrices:
            continue
        for name in needed:
            if name not in sheet.matrices:
                raise WorksheetError(
                    f"{name} is missing; {made} is computed from {' and '.join(needed)}, "
                    f"or give {made} itself"
                )


def _check_heads(sheet: Worksheet) -> None:
    m = sheet.matrices
    d_q = m["q"].shape[1] if "q" in m else m["w_q"].shape[1]
    d_k = m["k"].shape[1] if "k" in m else m["w_k"].shape[1]
    last = "v" if "v" in m else "v_up" if "v_up" in m else "w_v"
    d_v = m[last].shape[1]
    if d_q != d_k:
        raise WorksheetError(
            f"queries have {d_q} columns and keys {d_k}; their dot product needs equally many"
        )
    for what, width in (("d_k", d_k), ("d_v", d_v)):
        if width % sheet.heads:
            raise WorksheetError(f"heads = {sheet.heads} must divide {what} = {width}")
    if "w_o" in m and m["w_o"].shape[0] != d_v:
        raise WorksheetError(
            f"the joined heads are {len(sheet.tokens)}×{d_v} and w_o is {format_shape(m['w_o'])}; "
            f"to multiply them, w_o needs {d_v} rows"
        )
