"""Which numbers go into the file, so that it stays small enough to open at once.

What is left out is shown pooled, worked out in the page from queries and keys, or said to be
missing; never silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qkv.interpret.page.attentions import Attention
from qkv.interpret.trace import Trace

ROOM = 18 << 20  # bytes of numbers; a third more as text
PARAMETERS = 4 << 20  # of those, for the model's matrices
ANSWERS = 1 << 19  # a longer table of scores keeps its last row only
FINE = 64  # tokens; more are pooled


def whole(trace: Trace, attentions: list[Attention], room: int = ROOM) -> set[str]:
    """The values that are written in full, the most telling first, as far as there is room."""
    chosen: set[str] = set()
    for names in _wishes(trace, attentions):
        fresh = [name for name in names if name in trace and name not in chosen]
        cost = sum(size(trace, name) for name in fresh)
        if cost <= room:
            chosen.update(fresh)
            room -= cost
    return chosen


def parameters(trace: Trace, chosen: Iterable[str], room: int = PARAMETERS) -> list[str]:
    """Parameters behind the chosen values: all vectors, and all matrices if these fit."""
    used = dict.fromkeys(
        given for name in chosen for given in trace.node(name).inputs if given in trace.parameters
    )
    small = [name for name in used if trace.parameters[name].dim() < 2]
    large = [name for name in used if trace.parameters[name].dim() == 2]
    fits = sum(4 * trace.parameters[name].numel() for name in used) <= room
    return small + large * fits


def size(trace: Trace, name: str) -> int:
    """Bytes of a value as it is written."""
    numbers = trace[name].numel()
    return 4 * (numbers // len(trace[name][0]) if only_last(trace, name) else numbers)


def only_last(trace: Trace, name: str) -> bool:
    """Whether only the last position's row of this table is written."""
    node = trace.node(name)
    return node.axes == ("B", "T", "V") and 4 * trace[name].numel() > ANSWERS


def is_long(trace: Trace, attention: Attention) -> bool:
    """Whether the weights of this attention are shown pooled."""
    name = attention.name("weights")
    return name in trace and max(trace[name].shape[-2:]) > FINE


def _wishes(trace: Trace, attentions: list[Attention]) -> Iterator[list[str]]:
    yield ["ids", "source_ids", "positions", "source_positions"]
    yield [trace.graph.resolve("output")]
    yield ["probabilities"]
    yield [each.name("weights") for each in attentions if not is_long(trace, each)]
    for each in spread(attentions):
        yield [each.query, each.key, each.value, each.name("mixed")]
    for each in spread(attentions):
        yield [each.name(step) for step in ("scores", "scaled", "capped", "masked", "weights")]
    for name in trace:
        yield [name]


def spread(attentions: list[Attention]) -> list[Attention]:
    """The last one, the first, the middle one, and so on between those that were taken."""
    order: list[int] = []
    spans = [(0, len(attentions) - 1)]
    for last, first in spans if attentions else ():
        order += [first, last]
        middle = (first + last) // 2
        if abs(first - last) > 1:
            spans += [(min(first, last), middle), (middle, max(first, last))]
    return [attentions[at] for at in dict.fromkeys(order)]
