"""What the model answered, as the page tells it: tokens, labels, or a vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.explain.answer import Position, answer_of
from qkv.explain.trace import Trace

CHOOSE = "; choose a position to see the likeliest."


def answer(trace: Trace) -> dict[str, Any] | None:
    """Title, sentence, and the likeliest answers at each position; None if nothing was kept."""
    found = answer_of(trace)
    if found is None:
        return None
    if found.vector is not None:
        alike = f"{found.sentence} Texts that mean alike have vectors that point alike."
        name = trace.node("output").name
        return {"title": "The vector of the text", "sentence": alike, "vector": name}
    positions = [_position(position) for position in found.positions]
    if found.positions[0].token is None:
        return {"title": found.title, "sentence": found.sentence, "positions": positions}
    return _by_token(trace) | {"positions": positions}


def answer_names(trace: Trace) -> list[str]:
    """What each number of the answer is called: a token, a label, or its number."""
    return [trace.called(at) for at in range(trace["output"].shape[-1])]


def told(number: float) -> float | str:
    """A number for JSON, which has no word for what is none, nor for ∞."""
    return float(number) if np.isfinite(number) else str(float(number)).replace("inf", "Infinity")


def _by_token(trace: Trace) -> dict[str, str]:
    if any(name.startswith("decoder.") for name in trace.graph.nodes):
        said = f"After each position the model shares out 100 % among all tokens{CHOOSE}"
        return {"title": "What comes next", "sentence": said, "after": "next after"}
    said = f"At each position the model shares out 100 % among all tokens{CHOOSE}"
    return {"title": "What may stand there", "sentence": said, "after": "in the place of"}


def _position(position: Position) -> dict[str, Any]:
    best = [
        {"name": one.name, "probability": told(one.probability), "score": told(one.score)}
        for one in position.best
    ]
    return {"token": position.token, "best": best}
