"""Every value of a forward pass by name, with the operation that computed it."""

from typing import TYPE_CHECKING

from qkv.lazy import lazy_attributes

if TYPE_CHECKING:
    from qkv.interpret.trace.capture import TokenizedInput, capture_trace
    from qkv.interpret.trace.compare import TraceDifference, compare_traces, first_difference
    from qkv.interpret.trace.edits import (
        AblateHead,
        Edit,
        NoMask,
        NoPosition,
        NoScale,
        ReplaceToken,
        SetValue,
    )
    from qkv.interpret.trace.graph import Graph, Node
    from qkv.interpret.trace.model_graph import build_graph
    from qkv.interpret.trace.patches import (
        AddSteeringVector,
        MeanAblate,
        PatchActivation,
        ZeroAblate,
    )
    from qkv.interpret.trace.recompute import TraceCheck, check_recompute
    from qkv.interpret.trace.trace import Trace

__all__ = [
    "AblateHead",
    "AddSteeringVector",
    "Edit",
    "Graph",
    "MeanAblate",
    "NoMask",
    "NoPosition",
    "NoScale",
    "Node",
    "PatchActivation",
    "ReplaceToken",
    "SetValue",
    "TokenizedInput",
    "Trace",
    "TraceCheck",
    "TraceDifference",
    "ZeroAblate",
    "build_graph",
    "capture_trace",
    "check_recompute",
    "compare_traces",
    "first_difference",
]

# The operations inside this package are plain NumPy; the worked example uses them without torch.
__getattr__ = lazy_attributes(
    __name__,
    {
        "qkv.interpret.trace.capture": ("TokenizedInput", "capture_trace"),
        "qkv.interpret.trace.compare": ("TraceDifference", "compare_traces", "first_difference"),
        "qkv.interpret.trace.edits": (
            "AblateHead",
            "Edit",
            "NoMask",
            "NoPosition",
            "NoScale",
            "ReplaceToken",
            "SetValue",
        ),
        "qkv.interpret.trace.graph": ("Graph", "Node"),
        "qkv.interpret.trace.model_graph": ("build_graph",),
        "qkv.interpret.trace.patches": (
            "AddSteeringVector",
            "MeanAblate",
            "PatchActivation",
            "ZeroAblate",
        ),
        "qkv.interpret.trace.recompute": ("TraceCheck", "check_recompute"),
        "qkv.interpret.trace.trace": ("Trace",),
    },
)
