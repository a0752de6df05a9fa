"""The most telling numbers as plain HTML tables, for readers without scripts."""

from __future__ import annotations

from qkv.explain.matrix import figure
from qkv.explain.page.answer import answer
from qkv.explain.page.attentions import Attention, attentions
from qkv.explain.page.parts import float32
from qkv.explain.page.payload import first_head
from qkv.explain.trace import Trace
from qkv.report.markup import paragraph, table

MOST = 24  # rows and columns


def plain(trace: Trace) -> str:
    """The likeliest answers, and the weights of the head that looks most decidedly."""
    found = attentions(trace)
    said = _answers(trace)
    if not found or found[0].name("weights") not in trace:
        return said or paragraph("There is nothing to show without scripts.")
    at, head = first_head(trace, found)
    return f"{said}\n{_weights(trace, found[at], head)}"


def _answers(trace: Trace) -> str:
    told = answer(trace)
    if told is None or "positions" not in told:
        return ""
    best = told["positions"][-1]["best"]
    rows = [[each["name"], figure(float(each["probability"]), 4)] for each in best]
    return table(f"{told['title']}: the likeliest answers", ["answer", "probability"], rows)


def _weights(trace: Trace, attention: Attention, head: int) -> str:
    values = float32(trace[attention.name("weights")])[0, head]
    along = trace.node(attention.name("weights")).along
    rows = trace.tokens[along["T"]]
    few = trace.few(attention.name("weights"))
    rows = rows if few is None else tuple(rows[at] for at in few)
    caption = f"{attention.kind}, layer {attention.layer}, head {head}: weights"
    if max(values.shape) > MOST:
        caption += f" (the first {MOST} of {values.shape[0]} queries and {values.shape[1]} keys)"
    cells = [
        [row, *(figure(float(cell), 4) for cell in numbers[:MOST])]
        for row, numbers in zip(rows[:MOST], values[:MOST], strict=True)
    ]
    return table(caption, ["query ↓ key →", *trace.tokens[along["S"]][:MOST]], cells)
