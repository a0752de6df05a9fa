"""Every operation of a model as a value that can be written down and computed again in NumPy."""

from typing import Any

from qkv.errors import DataError, unknown
from qkv.interpret.trace.operations.attention_steps import (
    Buckets,
    Capped,
    FactoredToHeads,
    Join,
    Linear,
    Masked,
    Mixed,
    Scaled,
    Scores,
    Seen,
    SlicesToHeads,
    Slopes,
    Softmax,
    ToHeads,
    TokenScores,
    Turned,
)
from qkv.interpret.trace.operations.pointwise import (
    AddRows,
    AddType,
    AddWaves,
    Angles,
    Array,
    Bent,
    Given,
    LayerNormed,
    LookUp,
    Operation,
    Plus,
    Pooled,
    Product,
    RootMeanNormed,
    Times,
    Unit,
)

KINDS: dict[str, type[Operation]] = {
    kind.__name__: kind
    for kind in (
        *(AddRows, AddType, AddWaves, Angles, Bent, Buckets, Capped, FactoredToHeads, Given, Join),
        *(LayerNormed, Linear, LookUp, Masked, Mixed, Plus, Pooled, Product, RootMeanNormed),
        *(Scaled, Scores, Seen, SlicesToHeads, Slopes, Softmax, Times, ToHeads, TokenScores),
        *(Turned, Unit),
    )
}

__all__ = [
    "KINDS",
    "AddRows",
    "AddType",
    "AddWaves",
    "Angles",
    "Array",
    "Bent",
    "Buckets",
    "Capped",
    "FactoredToHeads",
    "Given",
    "Join",
    "LayerNormed",
    "Linear",
    "LookUp",
    "Masked",
    "Mixed",
    "Operation",
    "Plus",
    "Pooled",
    "Product",
    "RootMeanNormed",
    "Scaled",
    "Scores",
    "Seen",
    "SlicesToHeads",
    "Slopes",
    "Softmax",
    "Times",
    "ToHeads",
    "TokenScores",
    "Turned",
    "Unit",
    "read_operation",
]


def read_operation(written: dict[str, Any]) -> Operation:
    """What `Operation.json` wrote."""
    fields = dict(written)
    name = str(fields.pop("kind", ""))
    if name not in KINDS:
        raise DataError(unknown("operation", name, KINDS))
    return KINDS[name](**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})
