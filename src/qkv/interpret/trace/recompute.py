"""Values computed again in plain NumPy: one operation, or all that lie between it and what is kept.

From what enters each layer, any row of any head's attention can be had on demand, without the
T × S matrices that a whole pass would make.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from qkv.errors import UsageError
from qkv.interpret.matrix import cosine
from qkv.interpret.trace.graph import Node
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.trace import Trace

if TYPE_CHECKING:
    from qkv.interpret.trace.trace import Trace

if TYPE_CHECKING:
    from qkv.interpret.trace.trace import Trace

# FOLDED explain/trace/proof: What can be proved of a trace: its numbers belong together, and to
#   the model that answers.
# FOLDED explain/trace/difference: What an edit did: how far each layer moved, and what became
#   of the answer.


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
    return _sliced(trace, node.name, to_numpy(trace[name]), few)


def on_demand(trace: Trace, name: str, rows: Sequence[int] | None = None) -> Array:
    """The value for these queries (all if not given), from the nearest values that were kept."""
    node, few = trace.node(name), None
    if rows is not None:
        if "T" not in node.sequences:
            raise UsageError(f"{name} has no queries to choose among; leave rows out")
        few = list(as_rows(rows, len(trace.tokens[node.sequences["T"]])))
    return _Demand(trace).value(trace.graph.resolve(name), few)


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
            return to_numpy(trace.parameters[name])
        node = trace.graph.nodes[name]
        whole = not node.by_row or node.sequences["T"] not in trace.rows
        if name in trace and whole:
            return _sliced(trace, name, to_numpy(trace[name]), few, anyway=True)
        if node.is_input:
            return _sliced(trace, name, _given(trace, node), few, anyway=True)
        if name in trace.overrides:
            raise UsageError(f"{name} was set by an edit and not kept; trace again and keep it")
        rows = few if "T" in node.axes else None  # keys and values are needed of all positions
        inputs = [self.value(given, rows) for given in node.inputs]
        if _from_positions(node):
            inputs[1] = self.value(node.inputs[1], None)
        return node.operation.compute(*inputs)


def _expect_made(node: Node) -> None:
    if node.is_input:
        raise UsageError(f"{node.name} is given, not computed")


def _kept(trace: Trace, name: str) -> Array:
    return to_numpy(trace.parameters[name] if name in trace.parameters else trace[name])


def _given(trace: Trace, node: Node) -> Array:
    if node.axes != ("T",):
        raise UsageError(f"{node.name} was not kept and cannot be computed from anything")
    return np.arange(len(trace.tokens[node.sequences["T"]]))


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
    return node.hook_point is not None and node.hook_point.place == "mask"


def _rows_told_of(trace: Trace, node: Node) -> list[int] | None:
    """The queries that the operation can be computed for, if not for all."""
    inputs = (trace.graph.nodes.get(name) for name in node.inputs)
    if not node.by_row and not any(given is not None and given.by_row for given in inputs):
        return None
    rows = trace.rows.get(node.sequences["T"])
    return None if rows is None else list(rows)


def to_numpy(tensor: Tensor) -> Array:
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


CLOSE = 1e-5  # of a number, or of its size where it is larger than 1


@dataclass(frozen=True)
class TraceCheck:
    """The worst deviation found, where, and how much is allowed."""

    name: str
    ok: bool
    worst: float
    tolerance: float
    place: str = ""


def proofs(trace: Trace) -> tuple[TraceCheck, ...]:
    """Every proof that the kept values allow."""
    found = (
        _worst("fused = explicit", _fused(trace), 1e-5),
        _worst("softmax rows sum to 1", _sums(trace), 1e-5),
        _worst("answer = the served model's", _served(trace), 1e-4),
    )
    return tuple(proof for proof in found if proof is not None)


def check_recompute(trace: Trace) -> TraceCheck:
    """Every kept operation whose inputs are there, once more in NumPy."""
    proof = _worst("every step check_recompute in NumPy", _again(trace), CLOSE)
    return proof or TraceCheck("every step check_recompute in NumPy", True, 0.0, CLOSE)


def deviation(one: Array, other: Array) -> float:
    """The largest difference, as a share of the number where that is larger than 1.

    −∞ equals −∞ and NaN equals NaN; either beside a number is ∞.
    """
    one, other = np.broadcast_arrays(np.asarray(one, np.float64), np.asarray(other, np.float64))
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    if equal.all():
        return 0.0
    one, other = one[~equal], other[~equal]
    if not (np.isfinite(one) & np.isfinite(other)).all():
        return float("inf")
    return float((np.abs(one - other) / np.maximum(1.0, np.abs(other))).max())


def _worst(name: str, found: Iterable[tuple[str, float]], tolerance: float) -> TraceCheck | None:
    places = [(place, math.inf if math.isnan(off) else off) for place, off in found]
    if not places:
        return None
    place, worst = max(places, key=lambda pair: pair[1])
    return TraceCheck(name, worst <= tolerance, worst, tolerance, place)


def _fused(trace: Trace) -> Iterator[tuple[str, float]]:
    """What the fused kernel answered, held against weights · v."""
    for node in trace.nodes:
        if node.title == "mixed" and _possible(trace, node.name):
            again = recompute(trace, node.name)
            yield node.name, deviation(comparable(trace, node.name), again)


def _sums(trace: Trace) -> Iterator[tuple[str, float]]:
    for node in trace.nodes:
        if node.title == "weights":
            sums = to_numpy(trace[node.name]).astype(np.float64).sum(axis=-1)
            yield node.name, float(np.abs(sums - _whole(trace, node, sums)).max(initial=0.0))


def _whole(trace: Trace, node: Node, sums: Array) -> Array:
    """What each row should sum to: 1, or 0 for a query that sees nothing."""
    masked = node.inputs[0]
    if masked not in trace:
        return np.ones_like(sums)
    return np.asarray(~np.isneginf(to_numpy(trace[masked])).all(axis=-1), dtype=np.float64)


def _served(trace: Trace) -> Iterator[tuple[str, float]]:
    if "served" in trace and "output" in trace:
        output, served = to_numpy(trace["output"]), to_numpy(trace["served"])
        finite = bool(np.isfinite(output).all())
        yield "output", deviation(output, served) if finite else math.inf


def _again(trace: Trace) -> Iterator[tuple[str, float]]:
    for node in trace.nodes:
        if not node.is_input and _possible(trace, node.name):
            again = recompute(trace, node.name)
            yield node.name, deviation(comparable(trace, node.name), again)


def _possible(trace: Trace, name: str) -> bool:
    """Whether the inputs are there, and no edit has set the value instead."""
    return name not in trace.overrides and all(
        given in trace or given in trace.parameters for given in trace.node(name).inputs
    )


TOLD = 8  # answers named


@dataclass(frozen=True)
class Moved:
    """One of the likeliest answers, before and after."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Difference:
    """Between two traces of one model.

    first: the first value that is not the same; layers: |change| ÷ |state| after each layer;
    answers: probabilities of those that were or have become likeliest, at the last position;
    cosine: between the answers of a model that gives vectors.
    """

    edits: tuple[str, ...]
    first: str | None
    layers: dict[str, float]
    answers: tuple[Moved, ...]
    cosine: float | None

    def json(self) -> dict[str, Any]:
        return {
            "edits": list(self.edits),
            "first": self.first,
            "layers": self.layers,
            "answers": [vars(moved) for moved in self.answers],
            "cosine": self.cosine,
        }


def difference(before: Trace, after: Trace) -> Difference:
    """How the second differs from the first, value by value in the order of computation."""
    if [*before.graph.nodes] != [*after.graph.nodes]:
        raise UsageError("the two traces are of models that are built differently")
    both = [name for name in before if name in after and name != "served"]
    first = next((name for name in both if not _same(before, after, name)), None)
    layers = {
        name: _relative(to_numpy(before[name]), to_numpy(after[name]))
        for name in before.graph.aliases
        if name != "output" and name in before and name in after
    }
    given = "probabilities" in before and "probabilities" in after
    answers = _answers(before, after) if given else ()
    vectors = (to_numpy(trace["output"]).ravel().astype(np.float64) for trace in (before, after))
    angle = None if given else cosine(*vectors)
    return Difference(after.edits, first, layers, answers, angle)


def _same(before: Trace, after: Trace, name: str) -> bool:
    one, other = to_numpy(before[name]), to_numpy(after[name])
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=True))


def _relative(one: Any, other: Any) -> float:
    if one.shape != other.shape:
        return float("nan")
    return float(np.linalg.norm(other - one) / max(float(np.linalg.norm(one)), 1e-30))


def _answers(before: Trace, after: Trace) -> tuple[Moved, ...]:
    one, other = (
        to_numpy(trace["probabilities"]).reshape(-1, trace["probabilities"].shape[-1])[-1]
        for trace in (before, after)
    )
    most = np.argsort(-np.maximum(one, other), kind="stable")[:TOLD]
    return tuple(Moved(before.output_name(int(i)), float(one[i]), float(other[i])) for i in most)
