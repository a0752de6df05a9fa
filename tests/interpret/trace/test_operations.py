"""An operation's arithmetic, its NumPy definition and its equation are one mathematics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from qkv.errors import DataError, UsageError
from qkv.interpret.trace.operations import (
    KINDS,
    Activation,
    AlibiBias,
    ConcatHeads,
    DisplayMatrix,
    ElementwiseAdd,
    ElementwiseMultiply,
    HeadScores,
    HeadWeightedSum,
    InputValue,
    L2Normalize,
    LayerNormalization,
    Linear,
    MaskScores,
    MatMul,
    Opaque,
    Operation,
    RMSNormalization,
    RopeAngles,
    Rotate,
    ScaleBy,
    ScaleScores,
    Scores,
    SoftCap,
    Softmax,
    TokenLogits,
    WeightedSum,
    read_operation,
)

T, S, D, E = 3, 5, 7, 4
DECIMALS = 12


def matrix(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


X = matrix(T, D)
GRID = matrix(T, S)
CAUSAL = np.tril(np.ones((T, S), dtype=bool))
ADDITIVE = np.where(CAUSAL, 0.0, -np.inf)
ANGLES = matrix(T, 4, 5)

CASES: dict[str, tuple[Operation, tuple[np.ndarray, ...]]] = {
    "matmul": (MatMul(), (X, matrix(D, E, 1))),
    "matmul with bias": (MatMul(bias=True), (X, matrix(D, E, 1), matrix(1, E, 2))),
    "linear": (Linear(), (X, matrix(E, D, 1), matrix(1, E, 2)[0])),
    "logits": (TokenLogits(False, 30.0), (X, matrix(11, D, 1))),
    "scores": (Scores(), (matrix(T, E), matrix(S, E, 1))),
    "scores of a head": (HeadScores(2, 6), (X, matrix(S, D, 1))),
    "scaled by the root": (ScaleScores(E**-0.5, E), (GRID,)),
    "scaled by a factor": (ScaleScores(0.3, E), (GRID,)),
    "soft cap": (SoftCap(5.0), (GRID,)),
    "boolean mask": (MaskScores(mask=True), (GRID, CAUSAL)),
    "additive mask": (MaskScores(mask=True), (GRID, ADDITIVE)),
    "bias and mask": (MaskScores(bias=True, mask=True), (GRID, matrix(T, S, 1), ADDITIVE)),
    "softmax": (Softmax(), (GRID + ADDITIVE,)),
    "softmax of large scores": (Softmax(), (GRID + 900.0,)),
    "weighted sum": (WeightedSum(), (GRID, matrix(S, E, 1))),
    "weighted sum of a head": (HeadWeightedSum(3, 7), (GRID, matrix(S, D, 1))),
    "rotation of halves": (Rotate(), (X, np.cos(ANGLES), np.sin(ANGLES))),
    "rotation of neighbours": (Rotate(adjacent=True), (X, np.cos(ANGLES), np.sin(ANGLES))),
    "heads": (ConcatHeads(), (matrix(T, 2), matrix(T, 3, 1))),
    "addition": (ElementwiseAdd(), (GRID, matrix(T, S, 1))),
    "gate": (ElementwiseMultiply(), (GRID, matrix(T, S, 1))),
    "factor": (ScaleBy(2.5), (GRID,)),
    "relu": (Activation("relu"), (GRID,)),
    "gelu": (Activation("gelu"), (GRID,)),
    "silu": (Activation("silu"), (GRID,)),
    "layer norm": (LayerNormalization(), (X, matrix(1, D, 1), matrix(1, D, 2))),
    "layer norm without shift": (LayerNormalization(shift=False), (X, matrix(1, D, 1))),
    "rms norm": (RMSNormalization(), (X, matrix(1, D, 1))),
    "rms norm with offset": (RMSNormalization(unit_offset=True), (X, matrix(1, D, 1))),
    "unit length": (L2Normalize(), (X,)),
    "angles, which have no arithmetic": (RopeAngles("cos", (1.0, 0.1)), (np.arange(T),)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_cell_worked_out_is_the_computed_one(name: str) -> None:
    operation, inputs = CASES[name]
    value = operation.compute(*inputs)
    printed = [DisplayMatrix(each, DECIMALS) for each in inputs]
    for row, column in np.ndindex(*value.shape):
        text, result = operation.arithmetic(row, column, DECIMALS, *printed)
        assert result == pytest.approx(value[row, column], abs=1e-9), text
        assert text


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (Activation("relu"), "max(0, (−1.50))"),
        (Activation("relu2"), "max(0, (−1.50))²"),
        (Activation("silu"), "(−1.50)·σ((−1.50))"),
        (ScaleScores(0.5, 4), "−1.50 ÷ √4 = −1.50 ÷ 2.00"),
        (ScaleScores(0.3, 4), "−1.50 × 0.300000"),
        (SoftCap(30.0), "30 × tanh(−1.50 ÷ 30)"),
        (L2Normalize(), "−1.50 ÷ 1.50"),
    ],
)
def test_a_cell_is_written_as_people_write_it(operation: Operation, text: str) -> None:
    assert operation.arithmetic(0, 0, 2, DisplayMatrix(np.array([[-1.5]]), 2)).text == text


def test_a_layer_and_one_of_its_heads_are_computed_alike() -> None:
    """(B, H, T, E) with grouped keys and values, and (T, E) of a single head."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, heads, 5, 3)) for heads in (6, 2, 2))
    scores = Scores().compute(q, k)
    weights = Softmax().compute(scores)
    output = WeightedSum().compute(weights, v)
    for head in range(6):
        group = head // 3
        np.testing.assert_array_equal(scores[0, head], Scores().compute(q[0, head], k[0, group]))
        of_head = WeightedSum().compute(weights[0, head], v[0, group])
        np.testing.assert_array_equal(output[0, head], of_head)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"ConstantFormula"}))  # an abstract base
def test_every_kind_is_written_and_read_again(kind: str) -> None:
    operation = KINDS[kind]()
    assert read_operation(operation.json()) == operation
    assert operation.equation
    assert operation.latex


@pytest.mark.parametrize(
    ("fields", "operation"),
    [
        ({"kind": "Turned", "adjacent": True}, Rotate(adjacent=True)),
        ({"kind": "Bent", "by": "silu"}, Activation("silu")),
        ({"kind": "Masked", "bias": False, "seen": True}, MaskScores(mask=True)),
        ({"kind": "RootMeanNormed", "eps": 0.1, "around_one": True}, RMSNormalization(0.1, True)),
        ({"kind": "Slopes", "slopes": [0.5, 0.25]}, AlibiBias((0.5, 0.25))),
        ({"kind": "Given", "what": "ids"}, InputValue("ids")),
    ],
)
def test_operations_of_version_0_1_are_read(fields: dict[str, Any], operation: Operation) -> None:
    assert read_operation(fields) == operation


def test_an_unknown_kind_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DataError, match='unknown operation "Sofmax"; did you mean "Softmax"'):
        read_operation({"kind": "Sofmax"})


def test_an_opaque_step_names_its_module_and_is_not_recomputed() -> None:
    opaque = Opaque("DifferentialAttention")
    assert opaque.equation == "computed by DifferentialAttention, not opened"
    assert not opaque.recomputable
    with pytest.raises(UsageError, match="a DifferentialAttention brings no operation"):
        opaque.compute(X)


def test_an_operation_from_outside_needs_no_more_than_its_definition() -> None:
    @dataclass(frozen=True)
    class Negate(Operation):
        @property
        def equation(self) -> str:
            return "−x"

        @property
        def latex(self) -> str:
            return "-X"

        def compute(self, *inputs: np.ndarray) -> np.ndarray:
            return -inputs[0]

    try:
        assert read_operation(Negate().json()) == Negate()
        text, result = Negate().arithmetic(1, 2, 4, DisplayMatrix(GRID, 4))
        assert (text, result) == ("−x", -GRID[1, 2])
    finally:
        del KINDS["Negate"]
