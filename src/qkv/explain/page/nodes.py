"""One named value as the page's script is told of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkv.explain.page import choice
from qkv.explain.page.parts import Parts, float32, pooled
from qkv.explain.page.wording import corner, sentence, title
from qkv.explain.trace import Trace
from qkv.explain.trace.operation import Array


def as_matrix(trace: Trace, name: str) -> Array:
    """The value as the page keeps it: (heads, rows, columns) or (rows, columns)."""
    value, axes = float32(trace[name]), trace.node(name).axes
    if axes[:1] == ("B",):
        value, axes = value[0], axes[1:]
    if axes == ("T",):
        return value[:, None]
    return value[None] if value.ndim == 1 else value


def node_told(
    trace: Trace, name: str, chosen: set[str], long: set[str], parts: Parts
) -> dict[str, Any]:
    """A step: its words, its sizes, where its numbers are; pooled too if it is long."""
    node, value = trace.node(name), as_matrix(trace, name)
    told: dict[str, Any] = {
        "name": name,
        "title": title(node),
        "equation": node.equation,
        "sentence": sentence(node),
        "corner": corner(node),
        "labels": _labels(trace, name),
        "operation": node.operation.json(),
        "inputs": list(node.inputs),
        "rows": None if (few := trace.few(name)) is None else list(few),
    }
    if choice.only_last(trace, name):
        told["rows"], value = [len(value) - 1], value[-1:]
    finite = np.abs(value[np.isfinite(value)]) if name in chosen else np.zeros(0)
    told["largest"] = float(finite.max(initial=0.0))
    told["shape"] = list(value.shape)
    if name in chosen:
        told["parts"] = parts.floats(value)
    if name in long and few is None:
        coarse, block = pooled(value, choice.FINE)
        told["pooled"] = {
            "name": f"{name}, pooled",
            "shape": list(coarse.shape[1:]),
            "block": block,
            "parts": parts.floats(coarse),
        }
    return told


def parameter_told(trace: Trace, name: str, parts: Parts) -> dict[str, Any]:
    """A parameter of the model, for the arithmetic of the steps it goes into."""
    value = float32(trace.parameters[name])
    value = value[None] if value.ndim == 1 else value
    return {
        "name": name,
        "shape": list(value.shape),
        "labels": [None, None],
        "parts": parts.floats(value),
    }


def _labels(trace: Trace, name: str) -> list[str | None]:
    """The sequences that run down and across; None where features are counted."""
    node = trace.node(name)
    axes = node.axes if len(node.axes) > 1 and node.axes != ("B", "T") else (*node.axes, "")
    if node.axes[-1] in ("V", "label"):
        return [node.along.get(axes[-2]), "answers"]
    return [node.along.get(axes[-2]), node.along.get(axes[-1])]
