"""Values recomputed in plain NumPy and float64, and the checks that follow from it.

One operation is recomputed from its inputs; or everything between a value and the nearest values
that were captured. From what enters each layer, any row of any head's attention can be computed on
demand, without the T × S matrices of a full pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from qkv.errors import UsageError
from qkv.interpret.trace.graph import Node
from qkv.interpret.trace.operations import Array

if TYPE_CHECKING:
    from qkv.interpret.trace.trace import Trace

TOLERANCE = 1e-5  # absolute, or relative to numbers larger than 1


def recompute(trace: Trace, name: str) -> Array:
    """One operation on its inputs, which must have been captured.

    Where only some queries were captured, for those queries.
    """
    node = trace.node(name)
    if node.is_input:
        raise UsageError(f"{node.name} is an input, not computed")
    if not node.operation.recomputable:
        raise UsageError(f"{node.name} is {node.equation}, so it cannot be recomputed")
    rows = _computable_rows(trace, node)
    inputs = [_take_rows(trace, each, _captured(trace, each), rows) for each in node.inputs]
    if _is_mask(node):
        inputs[1] = _captured(trace, node.inputs[1])  # the keys' positions: all of them
    return node.operation.compute(*inputs)


def captured_value(trace: Trace, name: str) -> Array:
    """The captured value, of the queries that `recompute` gives."""
    node = trace.node(name)
    rows = _computable_rows(trace, node)
    return _take_rows(trace, node.name, to_numpy(trace[name]), rows)


def on_demand(trace: Trace, name: str, rows: Sequence[int] | None = None) -> Array:
    """The value for these queries (None: for all), from the nearest values captured."""
    node = trace.node(name)
    queries = None
    if rows is not None:
        if "T" not in node.sequences:
            raise UsageError(f"{name} has no queries to choose among; leave rows out")
        queries = normalize_rows(rows, len(trace.tokens[node.sequences["T"]]))
    return _OnDemand(trace).value(trace.graph.resolve(name), queries)


class _OnDemand:
    """Goes back through the graph to captured values; computes nothing twice."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.values: dict[tuple[str, tuple[int, ...] | None], Array] = {}

    def value(self, name: str, rows: tuple[int, ...] | None) -> Array:
        if (name, rows) not in self.values:
            self.values[name, rows] = self._compute(name, rows)
        return self.values[name, rows]

    def _compute(self, name: str, rows: tuple[int, ...] | None) -> Array:
        trace = self.trace
        if name in trace.parameters:
            return to_numpy(trace.parameters[name])
        node = trace.graph.nodes[name]
        has_all_rows = not node.by_row or node.sequences["T"] not in trace.rows
        if name in trace and has_all_rows:
            return _take_rows(trace, name, to_numpy(trace[name]), rows, by_row=True)
        if node.axes == ("T",) and node.is_input:
            positions = np.arange(len(trace.tokens[node.sequences["T"]]))
            return _take_rows(trace, name, positions, rows, by_row=True)
        if not node.operation.recomputable:
            raise UsageError(f"{name} was not kept and cannot be computed from anything")
        if name in trace.overrides:
            raise UsageError(f"{name} was set by an edit and not kept; trace again and keep it")
        if "T" not in node.axes:
            rows = None  # keys and values: attention needs those of all positions
        inputs = [self.value(each, rows) for each in node.inputs]
        if _is_mask(node):
            inputs[1] = self.value(node.inputs[1], None)
        return node.operation.compute(*inputs)


def _captured(trace: Trace, name: str) -> Array:
    if name in trace.parameters:
        return to_numpy(trace.parameters[name])
    return to_numpy(trace[name])


def _take_rows(
    trace: Trace,
    name: str,
    value: Array,
    rows: Sequence[int] | None,
    by_row: bool = False,
) -> Array:
    """These queries of a value that has all of them.

    A value captured by row has just these already, unless the caller says with `by_row` that this
    one has all.
    """
    node = trace.graph.nodes.get(name)
    if rows is None or node is None or "T" not in node.axes:
        return value
    if node.by_row and not by_row:
        return value
    # A value that is the same for every text may lack the batch axis: count from the end.
    axis = value.ndim - len(node.axes) + node.axes.index("T")
    return np.take(value, list(rows), axis=axis)


def _is_mask(node: Node) -> bool:
    """Whether it is computed from positions twice: of the queries, then of the keys."""
    return node.hook_point is not None and node.hook_point.kind == "mask"


def _computable_rows(trace: Trace, node: Node) -> tuple[int, ...] | None:
    """The queries that the operation can be computed for; None for all."""
    inputs = [trace.graph.nodes[name] for name in node.inputs if name in trace.graph.nodes]
    if not node.by_row and not any(each.by_row for each in inputs):
        return None
    return trace.rows.get(node.sequences["T"])


def to_numpy(tensor: Tensor) -> Array:
    """The same numbers as a NumPy array; bfloat16 and float16 become float32."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point() and tensor.element_size() < 4:
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def normalize_rows(rows: Sequence[int], length: int) -> tuple[int, ...]:
    """Positions counted from the front; negative ones count from the end."""
    for row in rows:
        if not -length <= row < length:
            raise UsageError(f"row {row} is out of range: the text has {length} positions")
    return tuple(row % length for row in rows)


@dataclass(frozen=True)
class TraceCheck:
    """The largest deviation, the value where it occurs, and how much is allowed."""

    name: str
    ok: bool
    worst: float
    tolerance: float
    location: str = ""

    def json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.ok,
            "worst": self.worst,
            "tolerance": self.tolerance,
            "place": self.location,
        }


def run_checks(trace: Trace) -> tuple[TraceCheck, ...]:
    """Every check that the captured values allow."""
    checks = (
        _check("fused = explicit", _fused_deviations(trace), 1e-5),
        _check("softmax rows sum to 1", _row_sum_deviations(trace), 1e-5),
        _check("answer = the served model's", _served_deviations(trace), 1e-4),
    )
    return tuple(check for check in checks if check is not None)


def check_recompute(trace: Trace) -> TraceCheck:
    """Recompute every captured operation whose inputs were captured too."""
    name = "every step recomputed in NumPy"
    check = _check(name, _recompute_deviations(trace), TOLERANCE)
    return check or TraceCheck(name, True, 0.0, TOLERANCE)


def deviation(one: Array, other: Array) -> float:
    """The largest difference, relative to numbers larger than 1.

    −∞ equals −∞ and NaN equals NaN; either next to a finite number is ∞.
    """
    # A mask may lack the batch axis that the recomputed one has.
    one, other = np.broadcast_arrays(np.asarray(one, np.float64), np.asarray(other, np.float64))
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    if equal.all():
        return 0.0
    one = one[~equal]
    other = other[~equal]
    if not (np.isfinite(one) & np.isfinite(other)).all():
        return float("inf")
    return float((np.abs(one - other) / np.maximum(1.0, np.abs(other))).max())


def _check(
    name: str, deviations: Iterable[tuple[str, float]], tolerance: float
) -> TraceCheck | None:
    """The worst of some deviations; NaN is as bad as ∞. None if there are none."""
    cases = [(math.inf if math.isnan(each) else each, value) for value, each in deviations]
    if not cases:
        return None
    worst, location = max(cases, key=lambda case: case[0])
    return TraceCheck(name, worst <= tolerance, worst, tolerance, location)


def _fused_deviations(trace: Trace) -> Iterator[tuple[str, float]]:
    """The output of the fused kernel against weights · v."""
    for node in trace.nodes:
        if node.title == "mixed" and _can_recompute(trace, node):
            yield node.name, _recompute_deviation(trace, node)


def _row_sum_deviations(trace: Trace) -> Iterator[tuple[str, float]]:
    """Sums of the rows of attention weights against 1, or 0 for a query that sees no key."""
    for node in trace.nodes:
        # Weights that an edit has set sum to whatever it set them to.
        if node.title != "weights" or node.name in trace.overrides:
            continue
        sums = to_numpy(trace[node.name]).astype(np.float64).sum(axis=-1)
        expected = np.ones_like(sums)
        masked = node.inputs[0]
        if masked in trace:
            expected = ~np.isneginf(to_numpy(trace[masked])).all(axis=-1) * 1.0
        yield node.name, float(np.abs(sums - expected).max(initial=0.0))


def _served_deviations(trace: Trace) -> Iterator[tuple[str, float]]:
    """The output of this pass against that of the model that answers requests."""
    if "served" in trace and "output" in trace:
        output = to_numpy(trace["output"])
        if np.isfinite(output).all():
            yield "output", deviation(output, to_numpy(trace["served"]))
        else:
            yield "output", math.inf


def _recompute_deviations(trace: Trace) -> Iterator[tuple[str, float]]:
    for node in trace.nodes:
        if _can_recompute(trace, node):
            yield node.name, _recompute_deviation(trace, node)


def _recompute_deviation(trace: Trace, node: Node) -> float:
    return deviation(captured_value(trace, node.name), recompute(trace, node.name))


def _can_recompute(trace: Trace, node: Node) -> bool:
    """Whether the inputs were captured and no edit has set the value instead."""
    if not node.operation.recomputable or node.name in trace.overrides:
        return False
    return all(name in trace or name in trace.parameters for name in node.inputs)
