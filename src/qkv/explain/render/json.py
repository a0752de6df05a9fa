"""For programs: all digits, one JSON object. JSON has no infinity; −∞ is the string "-Infinity"."""

import json as encoder
from typing import Any

from qkv.explain.answer import answer_of
from qkv.explain.answers import Slip
from qkv.explain.matrix import Matrix
from qkv.explain.render.page import Look, cell_lines, slip_line
from qkv.explain.render.text import say
from qkv.explain.step import Walk
from qkv.explain.trace import Trace
from qkv.explain.trace.difference import Difference


def json(look: Look, judged: bool = False, cell: tuple[str, str] | None = None) -> str:
    """The steps; with answers judged also what is wrong; with a cell also its arithmetic."""
    walk, precision, slips = look.walk, look.precision, look.slips
    page: dict[str, Any] = {
        "title": walk.title,
        "steps": [
            {
                "name": step.name,
                "title": step.title,
                "equation": step.equation,
                "rows": list(step.rows),
                "columns": list(step.columns),
                "value": numbers(step.value),
                "inputs": list(step.made_by.inputs),
                "sentence": say(step.sentence),
            }
            for step in walk.only(look.steps)
        ],
    }
    if cell is not None:
        page["cells"] = cell_lines(look, *cell)
    if judged:
        page["ok"] = not slips
        page["slips"] = [slip_object(walk, slip, precision) for slip in slips]
    return encoder.dumps(page, ensure_ascii=False, allow_nan=False)


def model_json(
    look: Look, trace: Trace, changed: Difference | None, cell: tuple[str, str] | None
) -> str:
    """A head of a model: its steps, the model's answer, what changed, checks and origin."""
    page: dict[str, Any] = encoder.loads(json(look, cell=cell))
    answer = answer_of(trace)
    page |= {
        "answer": None if answer is None else answer.json(),
        "checks": [vars(proof) for proof in trace.checks],
        "about": dict(trace.about),
    }
    if changed is not None:
        page["changed"] = changed.json()
    return encoder.dumps(page, ensure_ascii=False)


def slip_object(walk: Walk, slip: Slip, precision: int) -> dict[str, Any]:
    return {
        "step": slip.step.name,
        "row": slip.step.rows[slip.row],
        "column": slip.step.columns[slip.column],
        "written": _number(slip.written),
        "right": _number(slip.right),
        "sentence": slip_line(walk, slip, precision),
    }


def numbers(matrix: Matrix) -> list[list[float | str]]:
    return [[_number(cell) for cell in row] for row in matrix.tolist()]


def _number(value: float) -> float | str:
    if value == float("inf"):
        return "Infinity"
    return "-Infinity" if value == float("-inf") else value
