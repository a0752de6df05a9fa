"""Values computed again in plain NumPy: one operation, or all that lie between it and what is kept.

From what enters each layer, any row of any head's attention can be had on demand, without the
T × S matrices that a whole pass would make.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from qkv.errors import UsageError
from qkv.explain.trace.node import Node
from qkv.explain.trace.operation import Array

if TYPE_CHECKING:
    from qkv.explain.trace.trace import Trace


def recompute(trace: Trace, name: str) -> Array:
    """One operation on its named inputs, which must have been kept.

    Where only some queries were kept, for those queries.
    """
    node = trace.node(name)
    _expect_made(node)
    few = _rows_told_of(trace, node)
    inputs = [_sliced(trace, given, _kept(trace, given), few) for given in node.inputs]
    return node.operation.compute(*_as_keys(trace, node, inputs))


def comparable(trace: Trace, name: str) -> Array:
    """The value as `recompute` gives it: of some queries alone if that can only tell of those."""
    node = trace.node(name)
    few = _rows_told_of(trace, node)
    return _sliced(trace, node.name, numpy(trace[name]), few)


def on_demand(trace: Trace, name: str, rows: Sequence[int] | None = None) -> Array:
    """The value for these queries (all if not given), from the nearest values that were kept."""
    node, few = trace.node(name), None
    if rows is not None:
        if "T" not in node.along:
            raise UsageError(f"{name} has no queries to choose among; leave rows out")
        few = list(as_rows(rows, len(trace.tokens[node.along["T"]])))
    return _Demand(trace).value(trace.graph.name(name), few)


class _Demand:
    """Goes back through the graph until it meets what is kept; nothing is computed twice."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.found: dict[tuple[str, tuple[int, ...] | None], Array] = {}

    def value(self, name: str, few: list[int] | None) -> Array:
        at = name, None if few is None else tuple(few)
        if at not in self.found:
            self.found[at] = self._value(name, few)
        return self.found[at]

    def _value(self, name: str, few: list[int] | None) -> Array:
        trace = self.trace
        if name in trace.parameters:
            return numpy(trace.parameters[name])
        node = trace.graph.nodes[name]
        whole = not node.by_row or node.along["T"] not in trace.rows
        if name in trace and whole:
            return _sliced(trace, name, numpy(trace[name]), few, anyway=True)
        if node.given:
            return _sliced(trace, name, _given(trace, node), few, anyway=True)
        if name in trace.touched:
            raise UsageError(f"{name} was set by an edit and not kept; trace again and keep it")
        rows = few if "T" in node.axes else None  # keys and values are needed of all positions
        inputs = [self.value(given, rows) for given in node.inputs]
        if _from_positions(node):
            inputs[1] = self.value(node.inputs[1], None)
        return node.operation.compute(*inputs)


def _expect_made(node: Node) -> None:
    if node.given:
        raise UsageError(f"{node.name} is given, not computed")


def _kept(trace: Trace, name: str) -> Array:
    return numpy(trace.parameters[name] if name in trace.parameters else trace[name])


def _given(trace: Trace, node: Node) -> Array:
    if node.axes != ("T",):
        raise UsageError(f"{node.name} was not kept and cannot be computed from anything")
    return np.arange(len(trace.tokens[node.along["T"]]))


def _sliced(
    trace: Trace, name: str, value: Array, few: list[int] | None, anyway: bool = False
) -> Array:
    """The asked queries of a value that has them all."""
    node = trace.graph.nodes.get(name)
    if few is None or node is None or "T" not in node.axes or (node.by_row and not anyway):
        return value
    return np.take(value, few, axis=value.ndim - len(node.axes) + node.axes.index("T"))


def _as_keys(trace: Trace, node: Node, inputs: list[Array]) -> list[Array]:
    """Where distances are made from positions twice, the second time those are of the keys."""
    if _from_positions(node):
        inputs[1] = _kept(trace, node.inputs[1])
    return inputs


def _from_positions(node: Node) -> bool:
    return node.pick is not None and node.pick.place == "mask"


def _rows_told_of(trace: Trace, node: Node) -> list[int] | None:
    """The queries that the operation can be computed for, if not for all."""
    inputs = (trace.graph.nodes.get(name) for name in node.inputs)
    if not node.by_row and not any(given is not None and given.by_row for given in inputs):
        return None
    rows = trace.rows.get(node.along["T"])
    return None if rows is None else list(rows)


def numpy(tensor: Tensor) -> Array:
    """The same numbers for NumPy, which has no bfloat16."""
    tensor = tensor.detach().cpu()
    narrow = tensor.is_floating_point() and tensor.element_size() < 4
    return np.asarray((tensor.float() if narrow else tensor).numpy())


def as_rows(rows: Sequence[int], length: int) -> tuple[int, ...]:
    """Positions counted from the front; those from the end may be asked for by −1, −2, …"""
    for row in rows:
        if not -length <= row < length:
            raise UsageError(f"row {row} is asked for, but the text has {length} positions")
    return tuple(row % length for row in rows)
