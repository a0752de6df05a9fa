"""Every value of a forward pass by name, with the operation that made it."""

from qkv.interpret.trace.capture import Reading, open_up
from qkv.interpret.trace.edits import (
    Changed,
    Edit,
    HeadOff,
    NoMask,
    NoPosition,
    NoScale,
    TokenReplaced,
)
from qkv.interpret.trace.graph import Graph, Node, graph
from qkv.interpret.trace.recompute import Proof, recomputed
from qkv.interpret.trace.trace import Trace

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
