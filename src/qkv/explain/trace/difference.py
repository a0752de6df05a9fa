"""What an edit did: how far each layer moved, and what became of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from qkv.errors import UsageError
from qkv.explain.matrix import cosine
from qkv.explain.trace.again import numpy
from qkv.explain.trace.trace import Trace

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
        name: _relative(numpy(before[name]), numpy(after[name]))
        for name in before.graph.aliases
        if name != "output" and name in before and name in after
    }
    given = "probabilities" in before and "probabilities" in after
    answers = _answers(before, after) if given else ()
    vectors = (numpy(trace["output"]).ravel().astype(np.float64) for trace in (before, after))
    angle = None if given else cosine(*vectors)
    return Difference(after.edits, first, layers, answers, angle)


def _same(before: Trace, after: Trace, name: str) -> bool:
    one, other = numpy(before[name]), numpy(after[name])
    return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=True))


def _relative(one: Any, other: Any) -> float:
    if one.shape != other.shape:
        return float("nan")
    return float(np.linalg.norm(other - one) / max(float(np.linalg.norm(one)), 1e-30))


def _answers(before: Trace, after: Trace) -> tuple[Moved, ...]:
    one, other = (
        numpy(trace["probabilities"]).reshape(-1, trace["probabilities"].shape[-1])[-1]
        for trace in (before, after)
    )
    most = np.argsort(-np.maximum(one, other), kind="stable")[:TOLD]
    return tuple(Moved(before.called(int(i)), float(one[i]), float(other[i])) for i in most)
