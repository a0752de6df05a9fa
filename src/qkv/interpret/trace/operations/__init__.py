"""Every operation of a model as a value that can be written down and computed again in NumPy."""

from typing import Any

from qkv.errors import DataError, unknown
from qkv.interpret.trace.operations.attention_steps import (
    AlibiBias,
    AttentionMask,
    ConcatHeads,
    FactoredLinearToHeads,
    Linear,
    LinearToHeads,
    MaskScores,
    RelativeBias,
    Rotate,
    ScaleScores,
    Scores,
    SlicedLinearToHeads,
    SoftCap,
    Softmax,
    TokenLogits,
    WeightedSum,
)
from qkv.interpret.trace.operations.pointwise import (
    KINDS,
    Activation,
    AddLearnedPositions,
    AddSinusoids,
    AddTokenType,
    Array,
    ElementwiseAdd,
    ElementwiseMultiply,
    EmbeddingLookup,
    InputValue,
    L2Normalize,
    LayerNormalization,
    Opaque,
    Operation,
    Pool,
    RMSNormalization,
    RopeAngles,
    ScaleBy,
)
from qkv.legacy import upgrade

__all__ = [
    "KINDS",
    "Activation",
    "AddLearnedPositions",
    "AddSinusoids",
    "AddTokenType",
    "AlibiBias",
    "Array",
    "AttentionMask",
    "ConcatHeads",
    "ElementwiseAdd",
    "ElementwiseMultiply",
    "EmbeddingLookup",
    "FactoredLinearToHeads",
    "InputValue",
    "L2Normalize",
    "LayerNormalization",
    "Linear",
    "LinearToHeads",
    "MaskScores",
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
    "SlicedLinearToHeads",
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
