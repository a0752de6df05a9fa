"""A reader with a calculator: every printed table follows from the printed tables above it."""

import math
import re
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest

from qkv.interpret.attention_walk import rounding_differences, walk
from qkv.interpret.examples import EXAMPLES, POEM
from qkv.interpret.render.sections import WalkView, cell_lines, sections
from qkv.interpret.render.terminal_text import render_text
from qkv.interpret.worksheet import Worksheet

Table = list[list[str]]


def read(page: str) -> tuple[dict[str, Table], dict[str, str]]:
    """The tables of a printed page, cells as printed, and what stands under each."""
    tables: dict[str, Table] = {}
    notes: dict[str, str] = {}
    for section in re.split(r"\n(?=\d+\. )", page)[1:]:
        name = re.search(r"\[(\S+)\]", section).group(1)  # type: ignore[union-attr]
        blocks = section.split("\n\n")
        tables[name] = [
            [cell for cell in line.split() if re.fullmatch(r"−?[\d.]+~?|−∞", cell)]
            for line in blocks[1].split("\n")[1:]
        ]
        notes[name] = " ".join(" ".join(blocks[2:]).split())
    return tables, notes


def number(cell: str) -> float:
    return float(cell.rstrip("~").replace("−", "-").replace("∞", "inf"))


def figure(value: float, precision: int) -> str:
    """Rounded as at school, in exact decimals."""
    if math.isinf(value):
        return "−∞"
    exact = Decimal(repr(float(value)))
    near = exact.quantize(Decimal(1).scaleb(-(precision + 7)), ROUND_HALF_UP)
    text = f"{near.quantize(Decimal(1).scaleb(-precision), ROUND_HALF_UP):f}".replace("-", "−")
    return text.removeprefix("−") if not text.strip("−0.") else text


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def by_calculator(tables: dict[str, Table], name: str, mask: bool) -> list[list[float]]:
    """The step from the figures printed above it, in plain Python."""
    values = {step: [[number(c) for c in row] for row in rows] for step, rows in tables.items()}

    def product(left: str, right: str) -> list[list[float]]:
        columns = list(zip(*values[right], strict=True))
        return [[dot(row, list(column)) for column in columns] for row in values[left]]

    if name in ("q", "k", "v"):
        return product("x", f"w_{name}")
    if name == "scores":
        return [[dot(q, k) for k in values["k"]] for q in values["q"]]
    if name == "scaled":
        return [[cell / math.sqrt(len(values["k"][0])) for cell in row] for row in values["scores"]]
    if name == "masked":
        rows = zip(values["scaled"], values["mask"], strict=True)
        return [[a + b for a, b in zip(*pair, strict=True)] for pair in rows]
    if name == "weights":
        powers = [
            [math.exp(cell) for cell in row] for row in values["masked" if mask else "scaled"]
        ]
        return [[power / math.fsum(row) for power in row] for row in powers]
    return product("weights", "v")


@pytest.mark.parametrize("precision", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("mask", [False, True])
def test_printed_figures_reproduce_each_other_or_are_marked(precision: int, mask: bool) -> None:
    page = render_text(WalkView(walk(replace(POEM, causal=mask)), precision), width=80)
    tables, notes = read(page)
    marks = 0
    for name in tables:
        if name in ("x", "w_q", "w_k", "w_v", "mask"):
            continue
        expected = by_calculator(tables, name, mask)
        for row, printed in zip(expected, tables[name], strict=True):
            for value, cell in zip(row, printed, strict=True):
                text = figure(value, precision)
                if cell.endswith("~"):
                    marks += 1
                    assert text != cell.rstrip("~"), (name, cell)
                    assert f"{text} at" in notes[name], (name, cell, text)
                else:
                    assert text == cell, (name, cell, text)
    assert marks > 0  # so that the marks themselves were tested


def test_rows_whose_printed_weights_do_not_add_up_to_one_say_so() -> None:
    tables, notes = read(render_text(WalkView(walk(POEM)), width=80))
    for word, row in zip(("write", "a", "poem"), tables["weights"], strict=True):
        total = f"{math.fsum(number(cell) for cell in row):.4f}"
        noted = f'{total} for "{word}"' in notes["weights"]
        assert noted == (total != "1.0000")


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("precision", [2, 4, 6])
def test_the_arithmetic_of_every_cell_ends_in_its_value(name: str, precision: int) -> None:
    """The last figures of each line, worked out, give the result that is printed.

    And the line tells of another value exactly where the table has its mark.
    """
    steps = walk(EXAMPLES[name])
    differ = {
        step.name: {(d.row, d.column) for d in rounding_differences(steps, step, precision)}
        for step in steps
    }
    for step in steps:
        for i, row in enumerate(step.rows):
            for j, column in enumerate(step.columns):
                lines = cell_lines(WalkView(steps, precision, (step.name,)), row, column)
                line = next(line for line in lines if line.startswith(f"{step.name}("))
                if step.is_input:
                    assert line.endswith(("(given)", "(by definition)"))
                    continue
                arithmetic, _, value = line.partition("; from all digits ")
                *_, last, result = arithmetic.split(" = ")
                assert figure(step.value[i, j], precision) == (value or result)
                assert bool(value) == ((i, j) in differ[step.name])
                if "column" not in last:
                    assert figure(_worked(last), precision) == result, line


def _ascii(figure: str) -> str:
    return figure.replace("−", "-")


def _worked(expression: str) -> float:
    plain = _ascii(expression).replace("×", "*").replace("÷", "/")
    assert re.fullmatch(r"[-+*/(). \d]+", plain), expression
    value = float(eval(plain, {"__builtins__": {}}))  # only digits and operators, checked above
    return value + 0.0 if value else 0.0


def test_large_scores_stay_readable_and_right() -> None:
    """e^800 would be infinity; the largest score is taken off first, which changes no share."""
    column = [[40.0], [20.0]]
    sheet = Worksheet(
        tokens=("p", "q"), matrices={name: np.array(column) for name in ("q", "k", "v")}
    )
    lines = cell_lines(WalkView(walk(sheet)), "p", "q")
    assert "weights(p, q) = e^(800.0000 − 1600.0000)" in lines[-1]
    assert lines[-1].endswith("= 0.0000")


def test_an_exact_half_is_rounded_as_at_school() -> None:
    """1.16 × 0.61 + 0.23 × 0.13 is exactly 0.7375, which binary numbers just miss."""
    line = cell_lines(WalkView(walk(POEM), precision=3), "write", "v2")
    assert line == ["v(write, v2) = 1.16 × 0.61 + 0.23 × 0.13 = 0.708 + 0.030 = 0.738"]
    tables, _ = read(render_text(WalkView(walk(POEM), precision=3), width=80))
    assert tables["v"][0] == ["0.600", "0.738"]


def test_many_marked_cells_are_counted_not_listed() -> None:
    numbers = np.random.default_rng(0).standard_normal((4, 30, 30))
    sheet = Worksheet(
        tokens=tuple(f"t{i}" for i in range(30)),
        matrices=dict(zip(("x", "w_q", "w_k", "w_v"), numbers, strict=True)),
    )
    (scores,) = sections(WalkView(walk(sheet), precision=2, steps=("scores",)))
    (note,) = scores.footnotes
    assert re.search(r"and \d+ more\.$", note)
    assert note.count(" at ") == 12


def test_a_cell_of_joined_heads_names_the_column_it_is_copied_from() -> None:
    view = WalkView(walk(EXAMPLES["heads"]), steps=("output",))
    assert cell_lines(view, "write", "o4") == [
        "output(write, o4) = column 2 of head2.output = 0.7209"
    ]
