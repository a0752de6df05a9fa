"""What the page's script reads as JSON: everything but the numbers, which lie in chunks."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from qkv.interpret.page.attentions import (
    DESCRIPTIONS,
    HATCHED,
    AttentionView,
    cap_of,
    head_patterns,
    is_recomputable,
    scale_of,
    visible_keys,
)
from qkv.interpret.page.cell_layouts import cell_layout
from qkv.interpret.page.page_sections import output_payload
from qkv.interpret.page.size_budget import (
    MAX_UNPOOLED,
    is_pooled,
    select_parameters,
    select_values,
    stored_bytes,
    stores_last_row_only,
)
from qkv.interpret.page.step_groups import group_steps, step_corner, step_sentence, step_title
from qkv.interpret.page.tensor_chunks import TensorChunks, as_float32, max_pool
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array

WRITTEN = "written"  # the axis of the tokens that a translator writes, one at each step


def build_payload(
    trace: Trace, attentions: list[AttentionView], max_bytes: int
) -> tuple[dict[str, Any], TensorChunks]:
    """The JSON, and the chunks it refers to."""
    chunks = TensorChunks()
    first_layer = ""
    if attentions:
        most_decided = attentions[most_decided_head(trace, attentions)[0]]
        first_layer = f"{most_decided.stack}.{most_decided.layer}."
    stored = select_values(trace, attentions, max_bytes, first_layer)
    pooled = {each.name("weights") for each in attentions if is_pooled(trace, each)}
    nodes = [_node_payload(trace, name, stored, pooled, chunks) for name in trace]
    left = max_bytes - sum(stored_bytes(trace, name) for name in stored)
    for name in select_parameters(trace, stored, left, first_layer):
        nodes.append(_parameter_payload(trace, name, chunks))
    # Every layer has the same causal mask: a page of 12 layers stores it once.
    masks = _Masks(chunks)
    layers, outer = group_steps(trace)
    return {
        "nodes": nodes,
        "attentions": [_attention_payload(trace, each, masks) for each in attentions],
        "masks": masks.payload,
        "layers": [{"groups": [vars(group) for group in layer.groups]} for layer in layers],
        "outer": [vars(steps) for steps in outer],
        "stacks": len({each.stack for each in attentions}),
        "first": most_decided_head(trace, attentions, stored),
        "tokens": _axis_tokens(trace, attentions),
        "names": _output_names(trace, stored),
        "logits": trace.graph.resolve("output"),
        "output": output_payload(trace),
        "checks": [_check_payload(check) for check in trace.checks],
    }, chunks


def as_matrix(trace: Trace, name: str) -> Array:
    """The value as the page stores it: (heads, rows, columns) or (rows, columns)."""
    value = as_float32(trace[name])
    axes = trace.node(name).axes
    if axes[:1] == ("B",):
        value = value[0]
        axes = axes[1:]
    if axes == ("T",):
        return value[:, None]
    if value.ndim == 1:
        return value[None]  # a vector is one row
    return value


def most_decided_head(
    trace: Trace, attentions: Sequence[AttentionView], stored: Container[str] | None = None
) -> tuple[int, int]:
    """The attention and head whose largest weights are largest: the one that is open at first.

    stored: only an attention whose queries are among these.
    """
    largest = -1.0
    result = (0, 0)
    for index, attention in enumerate(attentions):
        name = attention.name("weights")
        if name not in trace or (stored is not None and attention.query not in stored):
            continue
        weights = as_float32(trace[name])[0]
        means = np.nan_to_num(weights.max(axis=-1).mean(axis=-1))  # one per head
        if means.max() > largest:
            largest = float(means.max())
            result = (index, int(means.argmax()))
    return result


def _node_payload(
    trace: Trace, name: str, stored: set[str], pooled: set[str], chunks: TensorChunks
) -> dict[str, Any]:
    """A step: its words, its sizes, where its numbers are; pooled too if it is long."""
    node = trace.node(name)
    value = as_matrix(trace, name)
    rows = trace.query_rows(name)
    row_numbers: Sequence[int] | None = rows
    if stores_last_row_only(trace, name):
        row_numbers = [len(value) - 1]
        value = value[-1:]
    largest = 0.0
    if name in stored:
        largest = float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
    payload: dict[str, Any] = {
        "name": name,
        "title": step_title(node),
        "equation": node.equation,
        "sentence": step_sentence(node),
        "corner": step_corner(node),
        "labels": _axis_labels(trace, name),
        "cell": cell_layout(node),
        "inputs": list(node.inputs),
        "rows": row_numbers,
        "largest": largest,
        "shape": list(value.shape),
    }
    if name in stored:
        payload["chunks"] = chunks.add_floats(value)
    if name in pooled and rows is None:
        coarse, block = max_pool(value, MAX_UNPOOLED)
        payload["pooled"] = {
            "name": f"{name}, pooled",
            "shape": list(coarse.shape[1:]),
            "block": block,
            "chunks": chunks.add_floats(coarse),
        }
    return payload


def _parameter_payload(trace: Trace, name: str, chunks: TensorChunks) -> dict[str, Any]:
    """A parameter of the model, for the arithmetic of the steps it is an input of."""
    value = as_float32(trace.parameters[name])
    if value.ndim == 1:
        value = value[None]
    return {
        "name": name,
        "shape": list(value.shape),
        "labels": [None, None],
        "chunks": chunks.add_floats(value),
    }


def _axis_labels(trace: Trace, name: str) -> list[str | None]:
    """The sequences that run down and across; None where features are counted."""
    node = trace.node(name)
    axes = node.axes
    if len(axes) == 1 or axes == ("B", "T"):
        axes = (*axes, "")
    across = node.sequences.get(axes[-1])
    if node.axes[-1] in ("V", "label"):
        across = "answers"
    down = node.sequences.get(axes[-2])
    if axes[-2:] == ("T", "S") and down != across:
        down = WRITTEN
    return [down, across]


def _axis_tokens(trace: Trace, attentions: Sequence[AttentionView]) -> dict[str, list[str]]:
    """The tokens of each sequence; and those that are written, next to cross attention."""
    tokens = {name: list(names) for name, names in trace.tokens.items()}
    for attention in attentions:
        name = attention.name("weights")
        if name in trace and _axis_labels(trace, name)[0] == WRITTEN:
            tokens[WRITTEN] = list(trace.query_tokens(name))
    return tokens


class _Masks:
    """The masks of a page, each stored once however many attentions have it."""

    def __init__(self, chunks: TensorChunks) -> None:
        self.chunks = chunks
        self.payload: list[dict[str, Any]] = []
        self._indices: dict[tuple[int, bytes], int] = {}

    def index(self, mask: Array) -> int:
        key = (len(mask), mask.tobytes())
        if key not in self._indices:
            self._indices[key] = len(self.payload)
            self.payload.append(self.chunks.add_bits(mask))
        return self._indices[key]


def _attention_payload(trace: Trace, attention: AttentionView, masks: _Masks) -> dict[str, Any]:
    mask = visible_keys(trace, attention)
    about = DESCRIPTIONS[attention.part]
    mask_index = None
    if mask is not None:
        about += HATCHED
        mask_index = masks.index(mask)
    return {
        "prefix": attention.prefix,
        "stack": attention.stack.capitalize(),
        "layer": attention.layer,
        "kind": attention.kind,
        "heads": attention.heads,
        "query": attention.query,
        "key": attention.key,
        "about": about,
        "factor": scale_of(trace, attention),
        "cap": cap_of(trace, attention),
        "computable": is_recomputable(trace, attention),
        "mask": mask_index,
        "patterns": head_patterns(trace, attention),
    }


def _output_names(trace: Trace, stored: set[str]) -> dict[str, list[str]]:
    """The token or label of each logit, if the logits are in the file."""
    if "output" not in trace or trace.node("output").axes[-1] not in ("V", "label"):
        return {}
    if not stored & {trace.graph.resolve("output"), "probabilities", "served"}:
        return {}
    size = trace["output"].shape[-1]
    return {"answers": [trace.output_name(index) for index in range(size)]}


def _check_payload(check: Any) -> dict[str, Any]:
    return {
        "name": check.name,
        "ok": check.ok,
        "worst": check.worst if np.isfinite(check.worst) else None,  # JSON has no ∞
        "tolerance": check.tolerance,
        "location": check.location,
    }
