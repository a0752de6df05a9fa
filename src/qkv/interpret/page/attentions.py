"""Every attention of a trace: what its heads read, what hides keys from them, where they look."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array, ScaleScores, SoftCap

# FOLDED explain/page/parts: Tensors as text in parts: little-endian float32 in base64, each
#   with a checksum.
#
#   A page decodes a part when somebody looks at it, so a part is small; a head is never
#   split.

PART = 1 << 18  # bytes; a single head or row may be larger


class Parts:
    """All parts of one page, by the id they have in it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def floats(self, values: Array) -> list[dict[str, Any]]:
        """Where the numbers of (heads, rows, columns) or (rows, columns) are; exact."""
        exact = np.ascontiguousarray(values, dtype="<f4")
        return [
            {"first": first, "count": len(piece), "numbers": piece.size}
            | self._add(piece.tobytes())
            for first, piece in _pieces(exact)
        ]

    def bits(self, seen: Array) -> dict[str, Any]:
        """A mask (rows, columns), one bit a cell, rows after each other."""
        packed = np.packbits(np.asarray(seen, dtype=bool).ravel(), bitorder="little")
        return {"columns": int(seen.shape[1])} | self._add(packed.tobytes())

    def _add(self, raw: bytes) -> dict[str, Any]:
        name = f"p{len(self.texts)}"
        self.texts[name] = base64.b64encode(raw).decode("ascii")
        return {"id": name, "crc": zlib.crc32(raw)}


def float32(tensor: Tensor) -> Array:
    """The numbers of a tensor as the page writes them."""
    return np.asarray(tensor.detach().cpu().float().numpy())


def pooled(weights: Array, most: int) -> tuple[Array, tuple[int, int]]:
    """The largest of each block, so that no side is longer than `most`; and the block's size.

    weights (H, T, S) -> (H, ≤ most, ≤ most). Blocks at the end may be smaller.
    """
    block = -(-weights.shape[1] // most), -(-weights.shape[2] // most)
    down, across = (np.arange(0, weights.shape[axis + 1], block[axis]) for axis in (0, 1))
    return np.maximum.reduceat(np.maximum.reduceat(weights, across, axis=2), down, axis=1), block


def _pieces(values: Array) -> Iterator[tuple[int, Array]]:
    one = max(1, values[:1].nbytes)
    step = max(1, PART // one)
    for first in range(0, len(values), step):
        yield first, values[first : first + step]


LEFT_OUT = ("seen", "bias")  # masks: told by the masked scores

KINDS = {
    ("encoder", "attention"): "Encoder self-attention",
    ("decoder", "attention"): "Decoder self-attention",
    ("decoder", "cross"): "Cross attention",
}

ABOUT = {
    "attention": "Queries run down, keys across; the stronger the colour, the more a query looks "
    "at that key.",
    "cross": "Positions of the target run down, those of the source across; the stronger the "
    "colour, the more is read from there.",
}

HATCHED = " Hatched keys are hidden from it."


@dataclass(frozen=True)
class Attention:
    """One attention by name; query and key are what its scores are made of."""

    prefix: str
    stack: str
    layer: int
    part: str
    query: str
    key: str
    value: str
    heads: int

    def name(self, step: str) -> str:
        return f"{self.prefix}.{step}"

    @property
    def kind(self) -> str:
        return KINDS[self.stack, self.part]


def attentions(trace: Trace) -> list[Attention]:
    """Those of which some step by heads was kept."""
    heads: dict[str, int] = {}
    for name in trace:
        if is_by_head(trace, name):
            prefix = name.rpartition(".")[0]
            heads[prefix] = max(trace[name].shape[1], heads.get(prefix, 1))
    return [_attention(trace, prefix, count) for prefix, count in heads.items()]


def is_by_head(trace: Trace, name: str) -> bool:
    """Whether each head has its own table of this value."""
    step = name.rpartition(".")[2]
    return step not in LEFT_OUT and trace.node(name).axes[1:2] in (("H",), ("K",))


def seen(trace: Trace, attention: Attention) -> Array | None:
    """(T, S), True where a query may look; None if it may look everywhere, or nobody kept it.

    Queries that were not kept are taken to see everything.
    """
    masked, mask = attention.name("masked"), attention.name("seen")
    if masked in trace:
        shown = _at_their_rows(trace, masked, ~np.isneginf(float32(trace[masked])[0]).all(axis=0))
    elif mask in trace:
        shown = _at_their_rows(trace, mask, float32(trace[mask]) > 0.0)
    elif mask in trace.graph.nodes and not trace.edits:
        where = np.arange(len(trace.tokens[trace.graph[mask].sequences["T"]]))
        shown = np.asarray(trace.graph[mask].operation.compute(where, where))
    else:
        return None
    return None if shown.all() else shown


def computable(trace: Trace, attention: Attention) -> bool:
    """Whether rows of weights follow from queries and keys alone: no bias, nothing edited."""
    return attention.name("bias") not in trace.graph.nodes and not trace.edits and not trace.rows


def factor(trace: Trace, attention: Attention) -> float:
    operation = trace.graph[attention.name("scaled")].operation
    assert isinstance(operation, ScaleScores)
    return operation.factor


def cap(trace: Trace, attention: Attention) -> float | None:
    node = trace.graph.nodes.get(attention.name("capped"))
    return node.operation.cap if node and isinstance(node.operation, SoftCap) else None


def habits(trace: Trace, attention: Attention) -> list[str]:
    """Where each head mostly looks: at the first token, the one before, … or at many."""
    if attention.name("weights") not in trace:
        return [""] * attention.heads
    weights = float32(trace[attention.name("weights")])[0]
    return [_habit(head, attention.part == "attention") for head in weights]


def _at_their_rows(trace: Trace, name: str, shown: Array) -> Array:
    few = trace.query_rows(name)
    if few is None:
        return shown
    whole = np.ones(
        (len(trace.tokens[trace.node(name).sequences["T"]]), shown.shape[-1]), dtype=bool
    )
    whole[list(few)] = shown
    return whole


def _attention(trace: Trace, prefix: str, heads: int) -> Attention:
    stack, layer, part = prefix.split(".")
    q, k = trace.graph[f"{prefix}.scores"].inputs
    value = trace.graph[f"{prefix}.mixed"].inputs[1]
    return Attention(prefix, stack, int(layer), part, q, k, value, heads)


def _habit(weights: Array, own: bool) -> str:
    rows, columns = weights.shape
    if rows < 3 or not np.isfinite(weights).all():
        return ""
    found = dict(_places(weights[1:], range(1, rows)) if own and rows == columns else ())
    found |= {"first": weights[1:, 0].mean(), "last": weights[:-1, -1].mean()}
    name = max(found, key=lambda each: found[each])
    return f"{name} ({found[name]:.2f} on average)" if found[name] >= 0.35 else "spread"


def _places(weights: Array, rows: range) -> Iterator[tuple[str, float]]:
    at = np.arange(len(rows))
    yield "itself", weights[at, np.array(rows)].mean()
    yield "before", weights[at, np.array(rows) - 1].mean()
    yield "after", weights[at[:-1], np.array(rows)[:-1] + 1].mean()
