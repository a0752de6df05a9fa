"""All that the page's script is told, but for the numbers themselves, which lie in parts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from qkv.interpret.page import attentions as heads
from qkv.interpret.page import size_budget as choice
from qkv.interpret.page.attentions import Attention, Parts, attentions, float32, pooled
from qkv.interpret.page.chapters import chapters, corner, sentence, title
from qkv.interpret.page.page_sections import answer, answer_names
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array

# FOLDED explain/page/nodes: One named value as the page's script is told of it.


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
        "rows": None if (few := trace.query_rows(name)) is None else list(few),
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
        return [node.sequences.get(axes[-2]), "answers"]
    return [node.sequences.get(axes[-2]), node.sequences.get(axes[-1])]


def payload(trace: Trace, room: int = choice.ROOM) -> tuple[dict[str, Any], Parts]:
    """What the script reads as JSON, and the parts it refers to."""
    found, parts = attentions(trace), Parts()
    chosen = choice.whole(trace, found, room)
    long = {each.name("weights") for each in found if choice.is_long(trace, each)}
    nodes = [node_told(trace, name, chosen, long, parts) for name in trace]
    nodes += [parameter_told(trace, name, parts) for name in choice.parameters(trace, chosen)]
    masks: dict[tuple[int, bytes], int] = {}
    told: list[dict[str, Any]] = []
    attending = [_attention(trace, each, masks, told, parts) for each in found]
    layers, ends = chapters(trace)
    shown = trace.graph.resolve("output") in trace and trace.node("output").axes[-1] in (
        "V",
        "label",
    )
    return {
        "nodes": nodes,
        "attentions": attending,
        "masks": told,
        "layers": [
            {"groups": [vars(group) for group in layer.groups]} for layer in layers
        ],
        "ends": [vars(end) for end in ends],
        "stacks": len({each.stack for each in found}),
        "first": first_head(trace, found, chosen),
        "tokens": {name: list(labels) for name, labels in trace.tokens.items()},
        "names": {"answers": answer_names(trace)} if shown else {},
        "answer": trace.graph.resolve("output"),
        "output": answer(trace),
        "checks": [
            {"name": each.name, "ok": each.ok, "worst": _finite(each.worst),
             "tolerance": each.tolerance, "place": each.location}
            for each in trace.checks
        ],
    }, parts  # fmt: skip


def first_head(
    trace: Trace, found: Sequence[Attention], chosen: Container[str] | None = None
) -> tuple[int, int]:
    """The attention and head that is open at first: the one whose weights are most decided.

    chosen: only an attention whose queries are among these.
    """
    best, place = -1.0, (0, 0)
    for at, each in enumerate(found):
        if each.name("weights") not in trace or (chosen is not None and each.query not in chosen):
            continue
        sharp = np.nan_to_num(float32(trace[each.name("weights")])[0].max(axis=-1).mean(axis=-1))
        if sharp.max() > best:
            best, place = float(sharp.max()), (at, int(sharp.argmax()))
    return place


def _attention(
    trace: Trace,
    each: Attention,
    masks: dict[tuple[int, bytes], int],
    told: list[dict[str, Any]],
    parts: Parts,
) -> dict[str, Any]:
    seen = heads.seen(trace, each)
    mask = None
    if seen is not None:
        mask = masks.setdefault((len(seen), seen.tobytes()), len(told))
        if mask == len(told):
            told.append(parts.bits(seen))
    return {
        **{key: getattr(each, key) for key in ("prefix", "layer", "heads", "query", "key", "kind")},
        "stack": each.stack.capitalize(),
        "about": heads.ABOUT[each.part] + heads.HATCHED * (mask is not None),
        "factor": heads.factor(trace, each),
        "cap": heads.cap(trace, each),
        "computable": heads.computable(trace, each),
        "mask": mask,
        "habits": heads.habits(trace, each),
    }


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None
