"""A worksheet: words and matrices of one attention, read from TOML and checked field by field."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

# Your own results, to be checked. Each number is held to the decimals it is written with,
# two at least; "?" leaves a cell blank. With heads, tables are called head1.weights and so on.
[answers]
q = [[0.76, -0.05], [1.11, 0.79], [1.11, -2.15]]
k = [["?", "?"], ["?", "?"], ["?", "?"]]
"""

_MATRICES = ("x", "source_x", "w_q", "w_k", "w_v", "v_down", "v_up", "q", "k", "v", "w_o")
_FIELDS = (*_MATRICES, "title", "tokens", "source", "mask", "heads", "scale", "answers")

MAX_NUMBER_LENGTH = 24  # characters of a number that an error quotes in full


@dataclass(frozen=True)
class AnswerMatrix:
    """A matrix of answers; NaN where a cell is blank or cannot be read."""

    value: Matrix
    decimals: int | NDArray[np.int64]  # that each number, or all of them, is written with


@dataclass(frozen=True)
class Worksheet:
    """Everything one attention is computed from: x with weights, or q, k and v themselves.

    source: for cross attention, the words that keys and values come from.
    """

    tokens: tuple[str, ...]
    title: str = ""
    source: tuple[str, ...] | None = None
    matrices: Mapping[str, Matrix] = field(default_factory=dict)
    causal: bool = False
    heads: int = 1
    scaled: bool = True
    answers: Mapping[str, AnswerMatrix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_duplicates(self)
        _check_complete(self)
        _check_rows(self)
        _check_products(self)
        _check_heads(self)

    @property
    def keys(self) -> tuple[str, ...]:
        """The words that keys and values belong to."""
        if self.source is None:
            return self.tokens
        return self.source

    def has(self, *names: str) -> bool:
        """Whether it has all of these matrices."""
        return all(name in self.matrices for name in names)


def read_worksheet(path: Path) -> Worksheet:
    """The worksheet in a file; a WorksheetError describes a problem in one line."""
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
    """The worksheet in a TOML document."""
    try:
        # Decimal keeps the digits as written, which answers are checked to.
        fields = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise WorksheetError(f"not valid TOML: {error}") from None
    except RecursionError:
        raise WorksheetError("not valid TOML: nested too deeply") from None
    for name in fields:
        if name not in _FIELDS:
            raise WorksheetError(unknown("field", name, _FIELDS))
    return Worksheet(
        tokens=_parse_words(fields, "tokens"),
        title=" ".join(str(fields.get("title", "")).split()),
        source=_parse_words(fields, "source") if "source" in fields else None,
        matrices={
            name: _parse_matrix(name, fields[name])[0] for name in _MATRICES if name in fields
        },
        causal=_parse_mask(fields.get("mask", "none")),
        heads=_parse_heads(fields.get("heads", 1)),
        scaled=_parse_scale(fields.get("scale", True)),
        answers=_parse_answers(fields.get("answers", {})),
    )


def _parse_words(fields: dict[str, Any], name: str) -> tuple[str, ...]:
    words = fields.get(name)
    if words is None:
        raise WorksheetError(f'{name} is missing; name the words, as in {name} = ["write", "a"]')
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise WorksheetError(f'{name} must be a list of words, as in {name} = ["write", "a"]')
    return tuple(words)


def _parse_mask(value: Any) -> bool:
    if value not in ("causal", "none"):
        raise WorksheetError(f'mask must be "causal" or "none", not {value!r}')
    return bool(value == "causal")


def _parse_heads(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise WorksheetError(f"heads must be a whole number of 1 or more, not {value}")
    return value


def _parse_scale(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WorksheetError(f"scale must be true or false, not {value}")
    return value


def _parse_answers(value: Any) -> dict[str, AnswerMatrix]:
    if not isinstance(value, dict):
        raise WorksheetError("answers must be a table of matrices, as in [answers] q = [[…]]")
    answers: dict[str, AnswerMatrix] = {}
    for name, rows in value.items():
        if isinstance(rows, dict):
            # In TOML head1.weights is a table head1 with a key weights.
            nested = _parse_answers({f"{name}.{key}": matrix for key, matrix in rows.items()})
            answers.update(nested)
            continue
        matrix, decimals = _parse_matrix(f"answers.{name}", rows, is_answer=True)
        answers[name] = AnswerMatrix(matrix, decimals)
    return answers


def _parse_matrix(
    name: str, rows: Any, is_answer: bool = False
) -> tuple[Matrix, NDArray[np.int64]]:
    """The matrix, and how many decimals each of its numbers is written with.

    is_answer: a cell may be blank, which becomes NaN, or infinite: the mask is 0 or −∞.
    """
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise WorksheetError(
            f"{name} must be a list of rows, as in {name} = [[1.0, 2.0], [3.0, 4]]"
        )
    widths = [len(row) for row in rows]
    if not all(widths):
        raise WorksheetError(f"{name} has a row without numbers")
    if len(set(widths)) > 1:
        different = " and ".join(dict.fromkeys(map(str, widths)))
        raise WorksheetError(f"{name} has rows of {different} numbers; all need equally many")
    matrix = np.full((len(rows), widths[0]), np.nan)
    decimals = np.zeros(matrix.shape, dtype=np.int64)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if is_answer and _is_blank(cell):
                continue
            _check_number(f"{name} row {i + 1}, column {j + 1}", cell, allow_infinite=is_answer)
            matrix[i, j] = float(cell)
            if isinstance(cell, Decimal) and cell.is_finite():
                decimals[i, j] = max(0, -int(cell.as_tuple().exponent))
    return matrix, decimals


def _is_blank(cell: Any) -> bool:
    """Whether an answer is left open: "?", "", "__" or nan."""
    if isinstance(cell, str):
        return not cell.strip(" ?_")
    return isinstance(cell, Decimal) and cell.is_nan()


def _check_number(location: str, cell: Any, allow_infinite: bool) -> None:
    if isinstance(cell, bool):
        raise WorksheetError(f"{location} is {str(cell).lower()}, which is not a number")
    if not isinstance(cell, int | Decimal):
        raise WorksheetError(f"{location} is {cell!r}, which is not a number")
    try:
        number = float(cell)
    except OverflowError:  # an integer of more than 308 digits
        number = float("inf")
    if np.isnan(number) or (np.isinf(number) and not allow_infinite):
        raise WorksheetError(f"{location} is {_abridge(cell)}; a finite number is needed")


def _abridge(cell: Any) -> str:
    text = str(cell)
    if len(text) <= MAX_NUMBER_LENGTH:
        return text
    return f"{text[:20]}…, a number of {len(text)} digits"


def _check_duplicates(sheet: Worksheet) -> None:
    """No matrix is given that another one already determines."""
    for name, others in (
        ("q", ("w_q",)),
        ("k", ("w_k",)),
        ("v", ("w_v", "v_down", "v_up")),
        ("w_v", ("v_down", "v_up")),
    ):
        for other in others:
            if sheet.has(name, other):
                raise WorksheetError(f"{name} and {other} are both given; keep one of them")
    # An input that nothing is computed from is more likely a mistake than a comment.
    for name, products in (("x", "qkv"), ("source_x", "kv")):
        if sheet.has(name, *products):
            raise WorksheetError(f"{name} is given, but {', '.join(products)} are given directly")


def _check_complete(sheet: Worksheet) -> None:
    """Q, K and V are given or can be computed."""
    cross = sheet.source is not None
    if cross != sheet.has("source_x") and not (cross and sheet.has("k", "v")):
        missing = "source_x" if cross else "source"
        raise WorksheetError(f"{missing} is missing; cross attention needs source and source_x")
    memory = _memory(sheet)
    low_rank = sheet.has("v_down") or sheet.has("v_up")
    value_weights = ("v_down", "v_up") if low_rank else ("w_v",)
    for product, factors in (
        ("q", ("x", "w_q")),
        ("k", (memory, "w_k")),
        ("v", (memory, *value_weights)),
    ):
        if product in sheet.matrices:
            continue
        for name in factors:
            if name not in sheet.matrices:
                raise WorksheetError(
                    f"{name} is missing; {product} is computed from {' and '.join(factors)}, "
                    f"or give {product} itself"
                )


def _memory(sheet: Worksheet) -> str:
    """The matrix that keys and values are computed from."""
    if sheet.source is None:
        return "x"
    return "source_x"


def _check_rows(sheet: Worksheet) -> None:
    """A matrix with a row per word has as many rows as there are words."""
    memory_words = "tokens" if sheet.source is None else "source"
    for name, words, field_name in (
        ("x", sheet.tokens, "tokens"),
        ("source_x", sheet.keys, "source"),
        ("q", sheet.tokens, "tokens"),
        ("k", sheet.keys, memory_words),
        ("v", sheet.keys, memory_words),
    ):
        if name in sheet.matrices and len(sheet.matrices[name]) != len(words):
            count = "1 word" if len(words) == 1 else f"{len(words)} words"
            raise WorksheetError(
                f"{name} is {format_shape(sheet.matrices[name])} but {field_name} has {count}; "
                f"{name} needs one row a word"
            )


def _check_products(sheet: Worksheet) -> None:
    """Matrices that are multiplied fit together."""
    matrices = sheet.matrices
    memory = _memory(sheet)
    for left, right in (
        ("x", "w_q"),
        (memory, "w_k"),
        (memory, "w_v"),
        (memory, "v_down"),
        ("v_down", "v_up"),
    ):
        if not sheet.has(left, right):
            continue
        width = matrices[left].shape[1]
        if width != len(matrices[right]):
            raise WorksheetError(
                f"{left} is {format_shape(matrices[left])} and {right} is "
                f"{format_shape(matrices[right])}; to multiply them, {right} needs {width} rows"
            )


def _check_heads(sheet: Worksheet) -> None:
    """Queries and keys are equally wide, and heads divide the widths."""
    d_q = _width(sheet, "q", "w_q")
    d_k = _width(sheet, "k", "w_k")
    d_v = _width(sheet, "v", "v_up", "w_v")
    if d_q != d_k:
        raise WorksheetError(
            f"queries have {d_q} columns and keys {d_k}; their dot product needs equally many"
        )
    for name, width in (("d_k", d_k), ("d_v", d_v)):
        if width % sheet.heads:
            raise WorksheetError(f"heads = {sheet.heads} must divide {name} = {width}")
    w_o = sheet.matrices.get("w_o")
    if w_o is not None and len(w_o) != d_v:
        raise WorksheetError(
            f"the joined heads are {len(sheet.tokens)}×{d_v} and w_o is {format_shape(w_o)}; "
            f"to multiply them, w_o needs {d_v} rows"
        )


def _width(sheet: Worksheet, *names: str) -> int:
    """The columns of the first of these matrices that the worksheet has."""
    name = next(name for name in names if name in sheet.matrices)
    return int(sheet.matrices[name].shape[1])
