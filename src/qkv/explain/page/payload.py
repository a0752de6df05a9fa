"""All that the page's script is told, but for the numbers themselves, which lie in parts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from qkv.explain.page import attentions as heads
from qkv.explain.page import choice
from qkv.explain.page.answer import answer, answer_names
from qkv.explain.page.attentions import Attention, attentions
from qkv.explain.page.chapters import chapters
from qkv.explain.page.nodes import node_told, parameter_told
from qkv.explain.page.parts import Parts, float32
from qkv.explain.trace import Trace


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
    shown = trace.graph.name("output") in trace and trace.node("output").axes[-1] in ("V", "label")
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
        "answer": trace.graph.name("output"),
        "output": answer(trace),
        "checks": [
            {"name": each.name, "ok": each.ok, "worst": _finite(each.worst),
             "tolerance": each.tolerance, "place": each.place}
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
