"""What an edit did: how far each layer's output moved, and how the prediction changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.errors import UsageError
from qkv.interpret.matrix import cosine
from qkv.interpret.trace.capture import MAX_BYTES, TokenizedInput, capture_trace, value_bytes
from qkv.interpret.trace.edits import Edit
from qkv.interpret.trace.graph import Graph
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy
from qkv.interpret.trace.trace import Trace
from qkv.model import Model

MAX_PREDICTIONS = 8


@dataclass(frozen=True)
class ProbabilityChange:
    """The probability of one token or label, before and after."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class TraceDifference:
    """The difference between two traces of one model.

    first: the first value that is not the same; layers: |change| ÷ |state| after each layer;
    answers: the most probable outputs of either, at the last position; cosine: between the outputs
    of a model that gives vectors.
    """

    edits: tuple[str, ...]
    first: str | None
    layers: dict[str, float]
    answers: tuple[ProbabilityChange, ...]
    cosine: float | None

    def json(self) -> dict[str, Any]:
        return {
            "edits": list(self.edits),
            "first": self.first,
            "layers": self.layers,
            "answers": [vars(change) for change in self.answers],
            "cosine": self.cosine,
        }


def compare_traces(before: Trace, after: Trace) -> TraceDifference:
    """How the second trace differs from the first, value by value in the order of computation."""
    if [*before.graph.nodes] != [*after.graph.nodes]:
        raise UsageError("the two traces are of models with different graphs")
    first = _first_difference(before, after)
    layers = {
        name: _relative_change(to_numpy(before[name]), to_numpy(after[name]))
        for name in before.graph.aliases
        if name != "output" and name in before and name in after
    }
    if "probabilities" in before and "probabilities" in after:
        return TraceDifference(after.edits, first, layers, _predictions(before, after), None)
    vectors = [to_numpy(trace["output"]).ravel().astype(np.float64) for trace in (before, after)]
    return TraceDifference(after.edits, first, layers, (), cosine(*vectors))


def first_difference(
    model: Model, inputs: TokenizedInput, edits: Sequence[Edit], graph: Graph
) -> str | None:
    """The first value that the edits change, among all that the model computes.

    `compare_traces` gives the same for two traces that have captured everything; here values are
    captured in groups, so that a long text needs no more memory.
    """
    for names in _groups(model, inputs, graph):
        before = capture_trace(model, inputs, names, graph=graph)
        after = capture_trace(model, inputs, names, edits=edits, graph=graph)
        first = _first_difference(before, after)
        if first is not None:
            return first
    return None


def _groups(model: Model, inputs: TokenizedInput, graph: Graph) -> Iterator[list[str]]:
    """The names of all values in order, in groups that two traces can hold at once."""
    names: list[str] = []
    total = 0
    for node in graph:
        if node.name == "served":  # not computed by the model
            continue
        size = value_bytes(node, model, inputs, {})
        if names and total + size > MAX_BYTES // 2:
            yield names
            names = []
            total = 0
        names.append(node.name)
        total += size
    yield names


def _first_difference(before: Trace, after: Trace) -> str | None:
    """The first value of both traces that is not the same."""
    for name in before:
        if name in after and name != "served" and not _equal(before[name], after[name]):
            return name
    return None


def _equal(one: Any, other: Any) -> bool:
    return bool(np.array_equal(to_numpy(one), to_numpy(other), equal_nan=True))


def _relative_change(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return float("nan")
    return float(np.linalg.norm(other - one) / max(float(np.linalg.norm(one)), 1e-30))


def _predictions(before: Trace, after: Trace) -> tuple[ProbabilityChange, ...]:
    """The most probable outputs of either trace at the last position."""
    one = _last_probs(before)
    other = _last_probs(after)
    order = np.argsort(-np.maximum(one, other), kind="stable")[:MAX_PREDICTIONS]
    return tuple(
        ProbabilityChange(before.output_name(int(i)), float(one[i]), float(other[i])) for i in order
    )


def _last_probs(trace: Trace) -> Array:
    probs = to_numpy(trace["probabilities"])
    last: Array = probs.reshape(-1, probs.shape[-1])[-1]
    return last
