"""Every value of a forward pass by name, with the operation that made it."""

from qkv.explain.trace.capture import Reading, open_up
from qkv.explain.trace.edits import (
    Changed,
    Edit,
    HeadOff,
    NoMask,
    NoPosition,
    NoScale,
    TokenReplaced,
)
from qkv.explain.trace.graph import Graph, Node, graph
from qkv.explain.trace.recompute import Proof, recomputed
from qkv.explain.trace.trace import Trace

__all__ = [
    "Changed",
    "Edit",
    "Graph",
    "HeadOff",
    "NoMask",
    "NoPosition",
    "NoScale",
    "Node",
    "Proof",
    "Reading",
    "TokenReplaced",
    "Trace",
    "graph",
    "open_up",
    "recomputed",
]
