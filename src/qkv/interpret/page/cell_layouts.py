"""How the page writes down the arithmetic of one cell of a step.

The formula of an elementwise operation is the one that the operation itself gives, with
placeholders for the numbers; sums of many terms have a layout of their own, which the page's script
fills from the tensors in the file (assets/arithmetic.js).
"""

import re
from typing import Any

import numpy as np

from qkv.interpret.trace import Node
from qkv.interpret.trace.operations import (
    Activation,
    AddLearnedPositions,
    AddSinusoids,
    AddTokenType,
    ConcatHeads,
    DisplayMatrix,
    ElementwiseAdd,
    ElementwiseMultiply,
    EmbeddingLookup,
    InputValue,
    L2Normalize,
    LayerNormalization,
    Linear,
    MaskScores,
    Operation,
    Pool,
    RMSNormalization,
    Rotate,
    ScaleBy,
    Scores,
    SoftCap,
    Softmax,
    TokenLogits,
    WeightedSum,
)

DECIMALS = 4

OFFSET_NOTES: dict[type[Operation], str] = {
    AddTokenType: "of the type of text",
    AddLearnedPositions: "learned for this position",
    AddSinusoids: "of the wave at this position",
}


class Placeholder(DisplayMatrix):
    """Prints {x} for a number and {(x)} for a term of a sum or product."""

    def __init__(self, name: str) -> None:
        super().__init__(np.zeros((1, 1)), DECIMALS)
        object.__setattr__(self, "name", name)

    name: str

    def number(self, row: int, column: int) -> str:
        return f"{{{self.name}}}"

    def term(self, row: int, column: int) -> str:
        return f"{{({self.name})}}"


def cell_layout(node: Node) -> dict[str, Any]:
    """The layout of a cell's arithmetic, with its formulas and words, for the page's script."""
    operation = node.operation
    match operation:
        case InputValue():
            return {"layout": "text", "lines": [f"given: {node.equation}"]}
        case EmbeddingLookup():
            line = "number {column} of the row that the embedding table keeps for this token"
            return {"layout": "text", "lines": [line]}
        case ScaleBy() | SoftCap() | Activation():
            return {"layout": "elementwise", "formula": _formula(operation, "x"), "note": ""}
        case ElementwiseAdd() | ElementwiseMultiply():
            formula = _formula(operation, "x", "y")
            # Once more with the names of the inputs, for a reader who wonders what x and y are.
            note = re.sub(r"\{\(?x\)?\}", node.inputs[0], formula)
            note = re.sub(r"\{\(?y\)?\}", node.inputs[1], note)
            return {"layout": "elementwise", "formula": formula, "note": note}
        case AddTokenType() | AddLearnedPositions() | AddSinusoids():
            note = f"the second number is the one {OFFSET_NOTES[type(operation)]}"
            return {"layout": "offset", "note": note}
        case LayerNormalization(eps=eps, shift=shift):
            return {"layout": "normalize", "centred": True, "eps": eps, "shift": shift}
        case RMSNormalization(eps=eps, unit_offset=unit_offset):
            return {"layout": "normalize", "centred": False, "eps": eps, "unit_offset": unit_offset}
        case MaskScores(bias=bias):
            return {"layout": "mask", "bias": bias}
        case Rotate(adjacent=adjacent):
            return {"layout": "rotate", "adjacent": adjacent}
        case ConcatHeads():
            return {"layout": "concat"}
        case L2Normalize():
            return {"layout": "unit_length"}
        case _:
            return _sum_layout(operation)


def _sum_layout(operation: Operation) -> dict[str, Any]:
    """The layout of a sum of many terms; columns: the headings of the table of its terms."""
    match operation:
        case Scores():
            return {"layout": "dot", "columns": ["feature", "q", "k", "q × k"]}
        case Softmax():
            return {"layout": "softmax"}
        case WeightedSum():
            return {"layout": "weighted_sum", "columns": ["key", "weight", "v", "weight × v"]}
        case Linear(bias=bias):
            cap = operation.cap if isinstance(operation, TokenLogits) else None
            columns = ["feature", "x", "W", "x × W"]
            return {"layout": "linear", "columns": columns, "bias": bias, "cap": cap}
        case Pool(pooling="mean"):
            return {"layout": "mean", "columns": ["position", "value"]}
        case Pool():
            return {"layout": "text", "lines": [operation.equation]}
        case _:
            return {"layout": "equation"}


def _formula(operation: Operation, *names: str) -> str:
    """The operation's own arithmetic, with placeholders for the numbers of its inputs."""
    return operation.arithmetic(0, 0, DECIMALS, *(Placeholder(name) for name in names)).text
