"""A loaded model that answers: many texts at once, no position computed twice."""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes

if TYPE_CHECKING:
    from qkv.engine.batching import (
        PaddedBatch,
        batched_outputs,
        eval_mode,
        inference,
        pooled_states,
    )
    from qkv.engine.classify import Classification, Classifier, labels_of
    from qkv.engine.engine import Engine
    from qkv.engine.purpose import purpose_of
    from qkv.engine.similarity import Similarity, similar

__all__ = [
    "Classification",
    "Classifier",
    "Engine",
    "PaddedBatch",
    "Similarity",
    "batched_outputs",
    "eval_mode",
    "inference",
    "labels_of",
    "pooled_states",
    "purpose_of",
    "similar",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "qkv.engine.batching": (
            "PaddedBatch",
            "batched_outputs",
            "eval_mode",
            "inference",
            "pooled_states",
        ),
        "qkv.engine.engine": ("Engine",),
        "qkv.engine.purpose": ("purpose_of",),
        "qkv.engine.classify": (
            "Classification",
            "Classifier",
            "labels_of",
        ),
        "qkv.engine.similarity": (
            "Similarity",
            "similar",
        ),
    },
)
