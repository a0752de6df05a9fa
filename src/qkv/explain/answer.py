"""What the model answered: tokens, labels, or a vector, with the likeliest by name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qkv.explain.trace import Trace
from qkv.explain.trace.again import numpy
from qkv.explain.trace.operation import Array

BEST = 8  # answers named at each position


@dataclass(frozen=True)
class Likely:
    """One possible answer."""

    name: str
    probability: float
    score: float


@dataclass(frozen=True)
class Position:
    """The likeliest answers at one position; token is None where a whole text has one answer."""

    token: str | None
    best: tuple[Likely, ...]


@dataclass(frozen=True)
class Answer:
    """Either positions or a vector."""

    title: str
    sentence: str
    positions: tuple[Position, ...] = ()
    vector: tuple[float, ...] | None = None

    def json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"title": self.title}
        if self.vector is not None:
            return told | {"vector": list(self.vector)}
        return told | {"positions": [asdict(position) for position in self.positions]}


def answer_of(trace: Trace) -> Answer | None:
    """The answer with its names; None if it was not kept."""
    if "output" not in trace:
        return None
    output, node = numpy(trace["output"])[0], trace.node("output")
    if "probabilities" not in trace:
        size = float(np.linalg.norm(output))
        said = f"{output.shape[-1]} numbers, of length {size:.4f}."
        return Answer(f"The vector of the text: {said}", said, vector=tuple(output.tolist()))
    shares = numpy(trace["probabilities"])[0]
    if output.ndim == 1:
        one = Position(None, _best(trace, output, shares))
        return Answer("What the model says", "How probable each label is.", (one,))
    tokens = trace.tokens[node.along["T"]]
    rows = zip(tokens, output, shares, strict=True)
    places = tuple(Position(token, _best(trace, *numbers)) for token, *numbers in rows)
    if any(name.startswith("decoder.") for name in trace.graph.nodes):
        title = f"What comes after “{tokens[-1]}”"
        return Answer(title, "How probable each token is to come next.", places)
    title = f"What may stand in the place of “{tokens[-1]}”"
    return Answer(title, "How probable each token is there.", places)


def _best(trace: Trace, scores: Array, shares: Array) -> tuple[Likely, ...]:
    order = np.argsort(-shares, kind="stable")[:BEST]
    return tuple(
        Likely(trace.called(int(at)), float(shares[at]), float(scores[at])) for at in order
    )
