"""Exercises from a worksheet: which cells are left blank, and the file to fill in.

A blank worksheet asks for every cell that is computed; a quiz leaves a few cells out, the same
ones for the same seed.
"""

import json
import random
from collections.abc import Sequence

import numpy as np

from qkv.errors import UsageError, WorksheetError
from qkv.interpret.matrix import Matrix, round_half_away
from qkv.interpret.step import Walk, WalkStep
from qkv.interpret.worksheet import Worksheet

Blanks = frozenset[tuple[str, int, int]]  # step, row, column

LARGEST = 20  # tenths: the numbers of a random worksheet are between −2.0 and 2.0


def exercise_steps(walk: Walk, names: Sequence[str] = ()) -> list[WalkStep]:
    """The steps to be worked out, or those of these names; a given matrix is a UsageError."""
    steps = walk.select(names)
    if not names:
        return [step for step in steps if not step.is_input]
    for step in steps:
        if step.is_input:
            raise UsageError(f"{step.name} is not computed but {step.operation.equation}")
    return steps


def all_blanks(walk: Walk, names: Sequence[str] = ()) -> Blanks:
    """Every cell of these steps, or of all steps that are computed."""
    return frozenset(cell for step in exercise_steps(walk, names) for cell in _cells(step))


def choose_blanks(walk: Walk, count: int, seed: int, names: Sequence[str] = ()) -> Blanks:
    """So many cells, spread evenly over these steps or over all that are computed.

    Cells that a mask hides are not asked for.
    """
    generator = random.Random(seed)
    columns = []
    for step in exercise_steps(walk, names):
        cells = [cell for cell in _cells(step) if not _is_hidden(walk, step, *cell[1:])]
        columns.append(generator.sample(cells, len(cells)))
    total = sum(map(len, columns))
    if not 1 <= count <= total:
        raise UsageError(f"blank={count} must be between 1 and {total}, the cells of these steps")
    generator.shuffle(columns)
    # One cell of each step in turn, so that no step is asked for twice before every other one.
    deals = []
    for turn in range(max(map(len, columns))):
        deals += [column[turn] for column in columns if turn < len(column)]
    return frozenset(deals[:count])


def _is_hidden(walk: Walk, step: WalkStep, row: int, column: int) -> bool:
    """Whether the mask alone decides the cell: its score is −∞ and its weight 0."""
    if not step.name.endswith(("masked", "weights")) or "mask" not in walk.names:
        return False
    return bool(np.isneginf(walk["mask"].value[row, column]))


def _cells(step: WalkStep) -> list[tuple[str, int, int]]:
    rows, columns = step.value.shape
    return [(step.name, i, j) for i in range(rows) for j in range(columns)]


def random_worksheet(words: Sequence[str], width: int, seed: int) -> Worksheet:
    """New numbers with one decimal for these words, the same ones for the same seed."""
    if not words:
        raise WorksheetError("an exercise needs at least one word")
    generator = random.Random(seed)

    def matrix(rows: int) -> Matrix:
        cells = [generator.randint(-LARGEST, LARGEST) / 10 for _ in range(rows * width)]
        return np.array(cells, dtype=np.float64).reshape(rows, width)

    return Worksheet(
        tokens=tuple(words),
        matrices={
            "x": matrix(len(words)),
            "w_q": matrix(width),
            "w_k": matrix(width),
            "w_v": matrix(width),
        },
    )


def exercise_toml(
    sheet: Worksheet, walk: Walk, blanks: Blanks, precision: int, names: Sequence[str] = ()
) -> str:
    """The worksheet as a file to fill in: "?" for a blank cell, a number for any other one."""
    example = f"{1.5:.{precision}f}"
    lines = [
        '# Replace each "?" by your result; what you leave as it is counts as blank.',
        f"# Write {precision} decimals, as in {example}; fewer are held to what you write, two at "
        "least.",
        "# Check it with: qkv worksheet --check FILE",
    ]
    if sheet.title:
        lines.append(f"title = {_string(sheet.title)}")
    lines.append(f"tokens = {_strings(sheet.tokens)}")
    if sheet.source is not None:
        lines.append(f"source = {_strings(sheet.source)}")
    if sheet.causal:
        lines.append('mask = "causal"')
    if sheet.heads > 1:
        lines.append(f"heads = {sheet.heads}")
    if not sheet.scaled:
        lines.append("scale = false")
    for name, matrix in sheet.matrices.items():
        numbers = [[repr(cell) for cell in row] for row in matrix.tolist()]
        lines += ["", *_matrix_lines(name, numbers)]
    lines += ["", "[answers]"]
    for step in exercise_steps(walk, names):
        rows = []
        for i, row in enumerate(step.value.tolist()):
            texts = [_decimal(cell, precision) for cell in row]
            for j in range(len(row)):
                if (step.name, i, j) in blanks:
                    texts[j] = '"?"'
            rows.append(texts)
        lines += ["", f"# {step.title}: {step.equation}"]
        lines += _matrix_lines(step.name, rows, step.rows)
    return "\n".join(lines) + "\n"


def _matrix_lines(name: str, rows: list[list[str]], labels: Sequence[str] = ()) -> list[str]:
    """A row per line, with its label as a comment."""
    lines = [f"{name} = ["]
    for index, row in enumerate(rows):
        label = f"  # {labels[index]}" if labels else ""
        lines.append(f"    [{', '.join(row)}],{label}")
    return [*lines, "]"]


def _decimal(value: float, precision: int) -> str:
    if np.isinf(value):
        return "-inf" if value < 0 else "inf"
    return f"{round_half_away(value, precision) + 0.0:.{precision}f}"


def _strings(words: Sequence[str]) -> str:
    return f"[{', '.join(map(_string, words))}]"


def _string(text: str) -> str:
    """A basic string of TOML: JSON's escapes, and DEL, which only TOML forbids."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
