"""Every attention of a trace as the page shows it: its steps, its mask, where its heads look."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qkv.interpret.page.tensor_chunks import as_float32
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array, ScaleScores, SoftCap

MASK_STEPS = ("seen", "bias")  # not shown by themselves: the masked scores show both

KINDS = {
    ("encoder", "attention"): "Encoder self-attention",
    ("decoder", "attention"): "Decoder self-attention",
    ("decoder", "cross"): "Cross attention",
}

DESCRIPTIONS = {
    "attention": "Queries run down, keys across; the stronger the colour, the more a query looks "
    "at that key.",
    "cross": "Positions of the target run down, those of the source across; the stronger the "
    "colour, the more is read from there.",
}

HATCHED = " Hatched keys are hidden from it."

MIN_PATTERN_WEIGHT = 0.35  # mean weight from which a head is said to look somewhere


@dataclass(frozen=True)
class AttentionView:
    """One attention by name; query, key and value are the inputs of its scores and output."""

    prefix: str
    stack: str
    layer: int
    part: str
    query: str
    key: str
    value: str
    heads: int

    def name(self, step: str) -> str:
        """The full name of one of its steps."""
        return f"{self.prefix}.{step}"

    @property
    def kind(self) -> str:
        return KINDS[self.stack, self.part]


def attention_views(trace: Trace) -> list[AttentionView]:
    """The attentions of which some step with heads was captured."""
    heads: dict[str, int] = {}
    for name in trace:
        if has_heads(trace, name):
            prefix = name.rpartition(".")[0]
            # Keys and values may have fewer heads than queries: the largest count is theirs.
            heads[prefix] = max(trace[name].shape[1], heads.get(prefix, 1))
    return [_view(trace, prefix, count) for prefix, count in heads.items()]


def _view(trace: Trace, prefix: str, heads: int) -> AttentionView:
    stack, layer, part = prefix.split(".")
    query, key = trace.graph[f"{prefix}.scores"].inputs
    value = trace.graph[f"{prefix}.mixed"].inputs[1]
    return AttentionView(prefix, stack, int(layer), part, query, key, value, heads)


def has_heads(trace: Trace, name: str) -> bool:
    """Whether each head has its own matrix of this value."""
    step = name.rpartition(".")[2]
    return step not in MASK_STEPS and trace.node(name).axes[1:2] in (("H",), ("K",))


def visible_keys(trace: Trace, attention: AttentionView) -> Array | None:
    """(T, S), True where a query may attend; None if it may everywhere, or if it is not known.

    Queries that were not captured are taken to see every key.
    """
    masked = attention.name("masked")
    mask = attention.name("seen")
    if masked in trace:
        visible = ~np.isneginf(as_float32(trace[masked])[0]).all(axis=0)
        visible = _at_their_rows(trace, masked, visible)
    elif mask in trace:
        visible = _at_their_rows(trace, mask, as_float32(trace[mask]) > 0.0)
    elif mask in trace.graph.nodes and not trace.edits:
        node = trace.graph[mask]
        positions = np.arange(len(trace.tokens[node.sequences["T"]]))
        visible = np.asarray(node.operation.compute(positions, positions))
    else:
        return None
    return None if visible.all() else visible


def _at_their_rows(trace: Trace, name: str, visible: Array) -> Array:
    rows = trace.query_rows(name)
    if rows is None:
        return visible
    length = len(trace.tokens[trace.node(name).sequences["T"]])
    full = np.ones((length, visible.shape[-1]), dtype=bool)
    full[list(rows)] = visible
    return full


def is_recomputable(trace: Trace, attention: AttentionView) -> bool:
    """Whether rows of weights follow from queries and keys alone: no bias, nothing edited."""
    has_bias = attention.name("bias") in trace.graph.nodes
    return not has_bias and not trace.edits and not trace.rows


def scale_of(trace: Trace, attention: AttentionView) -> float:
    """The factor that scores are multiplied by."""
    operation = trace.graph[attention.name("scaled")].operation
    assert isinstance(operation, ScaleScores)
    return operation.factor


def cap_of(trace: Trace, attention: AttentionView) -> float | None:
    """The soft cap on the scores, if there is one."""
    node = trace.graph.nodes.get(attention.name("capped"))
    if node is None:
        return None
    assert isinstance(node.operation, SoftCap)
    return node.operation.cap


def head_patterns(trace: Trace, attention: AttentionView) -> list[str]:
    """Where each head mostly looks: at the first token, the one before, … or at many."""
    if attention.name("weights") not in trace:
        return [""] * attention.heads
    weights = as_float32(trace[attention.name("weights")])[0]
    return [_pattern(head, attention.part == "attention") for head in weights]


def _pattern(weights: Array, is_self_attention: bool) -> str:
    rows, columns = weights.shape
    if rows < 3 or not np.isfinite(weights).all():
        return ""
    means = {}
    if is_self_attention and rows == columns:
        # The first query of a causal head has no choice, so rows start at 1.
        at = np.arange(1, rows)
        means["itself"] = weights[at, at].mean()
        means["before"] = weights[at, at - 1].mean()
        means["after"] = weights[at[:-1], at[:-1] + 1].mean()
    means["first"] = weights[1:, 0].mean()
    means["last"] = weights[:-1, -1].mean()
    name = max(means, key=lambda each: means[each])
    if means[name] < MIN_PATTERN_WEIGHT:
        return "spread"
    return f"{name} ({means[name]:.2f} on average)"
