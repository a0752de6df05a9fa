"""What the model answered, as the page tells it: tokens, labels, or a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qkv.explain.page.parts import float32
from qkv.explain.trace import Trace
from qkv.explain.trace.operation import Array

BEST = 8  # answers named at each position


def answer(trace: Trace) -> dict[str, Any] | None:
    """Title, sentence, and the likeliest answers at each position; None if nothing was kept."""
    if "output" not in trace:
        return None
    node = trace.node("output")
    if "probabilities" not in trace:
        return _vector(node.name, float32(trace["output"]))
    names = answer_names(trace)
    scores, shares = float32(trace["output"])[0], float32(trace["probabilities"])[0]
    if node.axes[-1] == "label" or scores.ndim == 1:
        best = _best(scores, shares, names)
        return {
            "title": "What the model says",
            "sentence": "The label it finds likeliest, and how sure it is.",
            "positions": [{"token": None, "best": best}],
        }
    tokens = trace.tokens[node.along["T"]]
    rows = zip(tokens, scores, shares, strict=True)
    places = [{"token": token, "best": _best(row, share, names)} for token, row, share in rows]
    return _by_token(trace) | {"positions": places}


def answer_names(trace: Trace) -> list[str]:
    """What each number of the answer is called: a token, a label, or its number."""
    said = trace.outputs
    return [said[at] if at < len(said) else f"#{at}" for at in range(trace["output"].shape[-1])]


def _by_token(trace: Trace) -> dict[str, str]:
    if any(name.startswith("decoder.") for name in trace.graph.nodes):
        return {
            "title": "What comes next",
            "sentence": "After each position the model shares out 100 % among all tokens; choose "
            "a position to see the likeliest.",
            "after": "next after",
        }
    return {
        "title": "What may stand there",
        "sentence": "At each position the model shares out 100 % among all tokens; choose a "
        "position to see the likeliest.",
        "after": "in the place of",
    }


def _vector(name: str, values: Array) -> dict[str, Any]:
    return {
        "title": "The vector of the text",
        "sentence": f"{values.shape[-1]} numbers, of length {np.linalg.norm(values[0]):.4f}; "
        "texts that mean alike have vectors that point alike.",
        "vector": name,
    }


def _best(scores: Array, shares: Array, names: Sequence[str]) -> list[dict[str, Any]]:
    order = np.argsort(-shares, kind="stable")[:BEST]
    return [
        {"name": names[int(at)], "probability": told(shares[at]), "score": told(scores[at])}
        for at in order
    ]


def told(number: float) -> float | str:
    """A number for JSON, which has no word for what is none, nor for ∞."""
    return float(number) if np.isfinite(number) else str(float(number)).replace("inf", "Infinity")
