"""The arithmetic of a cell on the page: its formulas are those of the operations."""

import re
from importlib.resources import files

import pytest

from qkv.interpret.page.cell_layouts import cell_layout
from qkv.interpret.trace import Node
from qkv.interpret.trace.operations import (
    KINDS,
    Activation,
    ElementwiseAdd,
    ElementwiseMultiply,
    Operation,
    ScaleBy,
    ScaleScores,
    SoftCap,
)

SCRIPT = (files("qkv.interpret.page") / "assets" / "arithmetic.js").read_text("utf-8")
OURS = [kind for kind in KINDS.values() if kind.__module__.startswith("qkv.")]


@pytest.mark.parametrize(
    ("operation", "formula"),
    [
        (Activation("relu"), "max(0, {(x)})"),
        (Activation("silu"), "{(x)}·σ({(x)})"),
        (ScaleBy(0.25), "{x} × 0.250000"),
        (ScaleScores(0.5, 4), "{x} ÷ √4 = {x} ÷ 2.0000"),
        (SoftCap(50.0), "50 × tanh({x} ÷ 50)"),
        (ElementwiseAdd(), "{x} + {(y)}"),
        (ElementwiseMultiply(), "{x} × {(y)}"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_elementwise_formula_is_the_operations_own(operation: Operation, formula: str) -> None:
    assert cell_layout(Node("y", operation, ("a", "b")))["formula"] == formula


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_the_script_knows_the_layout_of_every_operation(kind: type[Operation]) -> None:
    table = re.search(r"const LAYOUTS = \{(.*?)\n\};", SCRIPT, re.DOTALL)
    assert table is not None
    if kind.equation is Operation.equation:
        pytest.skip("a base class of operations")
    layout = cell_layout(Node("y", kind(), ("a", "b")))["layout"]
    assert re.search(rf"\b{layout}\b", table[1]), layout
