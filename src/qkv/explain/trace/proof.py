"""What can be proved of a trace: its numbers belong together, and to the model that answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qkv.explain.trace.again import comparable, numpy, recompute
from qkv.explain.trace.node import Node
from qkv.explain.trace.operation import Array

if TYPE_CHECKING:
    from qkv.explain.trace.trace import Trace

CLOSE = 1e-5  # of a number, or of its size where it is larger than 1


@dataclass(frozen=True)
class Proof:
    """The worst deviation found, where, and how much is allowed."""

    name: str
    ok: bool
    worst: float
    tolerance: float
    place: str = ""


def proofs(trace: Trace) -> tuple[Proof, ...]:
    """Every proof that the kept values allow."""
    found = (
        _worst("fused = explicit", _fused(trace), 1e-5),
        _worst("softmax rows sum to 1", _sums(trace), 1e-5),
        _worst("answer = the served model's", _served(trace), 1e-4),
    )
    return tuple(proof for proof in found if proof is not None)


def recomputed(trace: Trace) -> Proof:
    """Every kept operation whose inputs are there, once more in NumPy."""
    proof = _worst("every step recomputed in NumPy", _again(trace), CLOSE)
    return proof or Proof("every step recomputed in NumPy", True, 0.0, CLOSE)


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


def _worst(name: str, found: Iterable[tuple[str, float]], tolerance: float) -> Proof | None:
    places = [(place, math.inf if math.isnan(off) else off) for place, off in found]
    if not places:
        return None
    place, worst = max(places, key=lambda pair: pair[1])
    return Proof(name, worst <= tolerance, worst, tolerance, place)


def _fused(trace: Trace) -> Iterator[tuple[str, float]]:
    """What the fused kernel answered, held against weights · v."""
    for node in trace.nodes:
        if node.title == "mixed" and _possible(trace, node.name):
            again = recompute(trace, node.name)
            yield node.name, deviation(comparable(trace, node.name), again)


def _sums(trace: Trace) -> Iterator[tuple[str, float]]:
    for node in trace.nodes:
        if node.title == "weights":
            sums = numpy(trace[node.name]).astype(np.float64).sum(axis=-1)
            yield node.name, float(np.abs(sums - _whole(trace, node, sums)).max(initial=0.0))


def _whole(trace: Trace, node: Node, sums: Array) -> Array:
    """What each row should sum to: 1, or 0 for a query that sees nothing."""
    masked = node.inputs[0]
    if masked not in trace:
        return np.ones_like(sums)
    return np.asarray(~np.isneginf(numpy(trace[masked])).all(axis=-1), dtype=np.float64)


def _served(trace: Trace) -> Iterator[tuple[str, float]]:
    if "served" in trace and "output" in trace:
        output, served = numpy(trace["output"]), numpy(trace["served"])
        finite = bool(np.isfinite(output).all())
        yield "output", deviation(output, served) if finite else math.inf


def _again(trace: Trace) -> Iterator[tuple[str, float]]:
    for node in trace.nodes:
        if not node.given and _possible(trace, node.name):
            again = recompute(trace, node.name)
            yield node.name, deviation(comparable(trace, node.name), again)


def _possible(trace: Trace, name: str) -> bool:
    """Whether the inputs are there, and no edit has set the value instead."""
    return name not in trace.touched and all(
        given in trace or given in trace.parameters for given in trace.node(name).inputs
    )
