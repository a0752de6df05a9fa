"""Every step of a model as an operation: equation, LaTeX, NumPy definition, and cells by hand."""

from typing import Any

from qkv.errors import DataError, unknown
from qkv.interpret.trace.operations.attention_steps import (
    ConcatHeads,
    HeadScores,
    HeadWeightedSum,
    MaskScores,
    Rotate,
    ScaleScores,
    Scores,
    SoftCap,
    Softmax,
    WeightedSum,
)
from qkv.interpret.trace.operations.embedding_steps import (
    AddLearnedPositions,
    AddSinusoids,
    AddTokenType,
    EmbeddingLookup,
    RopeAngles,
)
from qkv.interpret.trace.operations.mask_steps import AlibiBias, AttentionMask, RelativeBias
from qkv.interpret.trace.operations.operation import (
    KINDS,
    Arithmetic,
    Array,
    DisplayMatrix,
    InputValue,
    Opaque,
    Operation,
)
from qkv.interpret.trace.operations.pointwise import (
    Activation,
    ElementwiseAdd,
    ElementwiseMultiply,
    L2Normalize,
    LayerNormalization,
    Pool,
    RMSNormalization,
    ScaleBy,
)
from qkv.interpret.trace.operations.projections import (
    BlockDiagonalToHeads,
    Linear,
    LinearToHeads,
    LowRankToHeads,
    MatMul,
    TokenLogits,
)
from qkv.legacy import upgrade

__all__ = [
    "KINDS",
    "Activation",
    "AddLearnedPositions",
    "AddSinusoids",
    "AddTokenType",
    "AlibiBias",
    "Arithmetic",
    "Array",
    "AttentionMask",
    "BlockDiagonalToHeads",
    "ConcatHeads",
    "DisplayMatrix",
    "ElementwiseAdd",
    "ElementwiseMultiply",
    "EmbeddingLookup",
    "HeadScores",
    "HeadWeightedSum",
    "InputValue",
    "L2Normalize",
    "LayerNormalization",
    "Linear",
    "LinearToHeads",
    "LowRankToHeads",
    "MaskScores",
    "MatMul",
    "Opaque",
    "Operation",
    "Pool",
    "RMSNormalization",
    "RelativeBias",
    "RopeAngles",
    "Rotate",
    "ScaleBy",
    "ScaleScores",
    "Scores",
    "SoftCap",
    "Softmax",
    "TokenLogits",
    "WeightedSum",
    "read_operation",
]


def read_operation(fields: dict[str, Any]) -> Operation:
    """The operation that `Operation.json` wrote, with the kinds and fields of older versions."""
    fields = upgrade("trace", fields)
    name = str(fields.pop("kind", ""))
    if name not in KINDS:
        raise DataError(unknown("operation", name, KINDS))
    # JSON has no tuples, and a frozen operation holds no lists.
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return KINDS[name](**arguments)
