"""Which tensors are stored in the file, so that it stays small enough to open at once.

What is left out is shown pooled, recomputed in the page from queries and keys, or marked as
missing; never silently dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qkv.interpret.page.attentions import AttentionView
from qkv.interpret.trace import Trace

MAX_BYTES = 18 << 20  # of numbers; a third more as text
SHORT_TEXT = 8  # tokens
SHORT_TEXT_BYTES = 480 << 10  # of numbers of a short text: its page stays well below 1 MB
MAX_PARAMETER_BYTES = 4 << 20  # of those, for the model's matrices
MAX_OUTPUT_FRACTION = 0.05  # of the budget, for a table of logits that goes in first
MAX_LOGITS_BYTES = 1 << 19  # of a larger table of logits only the last row is stored
MAX_UNPOOLED = 64  # tokens; weights of longer texts are pooled


def page_budget(trace: Trace) -> int:
    """Bytes of numbers in a page: few for a short text, more with the square of its length.

    So nobody waits for a page about six words, and a long text still has all that can be shown.
    """
    tokens = sum(map(len, trace.tokens.values()))
    growth = max(1.0, tokens / SHORT_TEXT) ** 2
    return min(MAX_BYTES, int(SHORT_TEXT_BYTES * growth))


def select_values(
    trace: Trace, attentions: list[AttentionView], max_bytes: int, first_layer: str = ""
) -> set[str]:
    """The values that are stored in full: the most telling first, as far as the budget goes.

    Those of `first_layer`, as in "encoder.0.", come before the same ones of other layers.
    """
    selection: set[str] = set()
    for names in _by_importance(trace, attentions, max_bytes, first_layer):
        new = [name for name in names if name in trace and name not in selection]
        cost = sum(stored_bytes(trace, name) for name in new)
        # Greedy: a group that does not fit is skipped, a smaller one after it may still fit.
        if cost <= max_bytes:
            selection.update(new)
            max_bytes -= cost
    return selection


def select_parameters(
    trace: Trace, values: Iterable[str], max_bytes: int, first_layer: str = ""
) -> list[str]:
    """Parameters behind these values: all vectors, and all matrices if they fit together.

    If not, those of `first_layer` that fit, as in "encoder.0."; it is the one that the page opens.
    """
    names: dict[str, None] = {}  # a set that keeps its order
    for value in values:
        for name in trace.node(value).inputs:
            if name in trace.parameters:
                names[name] = None
    vectors = [name for name in names if trace.parameters[name].dim() < 2]
    matrices = [name for name in names if trace.parameters[name].dim() == 2]
    left = min(max_bytes, MAX_PARAMETER_BYTES)
    left -= sum(4 * trace.parameters[name].numel() for name in vectors)
    if sum(4 * trace.parameters[name].numel() for name in matrices) <= left:
        return vectors + matrices
    selection = vectors
    for name in matrices:
        size = 4 * trace.parameters[name].numel()
        if name.startswith(first_layer) and size <= left:
            selection.append(name)
            left -= size
    return selection


def stored_bytes(trace: Trace, name: str) -> int:
    """The size of a value as it is stored."""
    numbers = trace[name].numel()
    if stores_last_row_only(trace, name):
        numbers //= len(trace[name][0])
    return 4 * numbers


def stores_last_row_only(trace: Trace, name: str) -> bool:
    """Whether only the last position's logits or probabilities are stored."""
    is_over_vocabulary = trace.node(name).axes == ("B", "T", "V")
    return is_over_vocabulary and 4 * trace[name].numel() > MAX_LOGITS_BYTES


def is_pooled(trace: Trace, attention: AttentionView) -> bool:
    """Whether the weights of this attention are shown pooled."""
    name = attention.name("weights")
    return name in trace and max(trace[name].shape[-2:]) > MAX_UNPOOLED


def _by_importance(
    trace: Trace, attentions: list[AttentionView], max_bytes: int, first_layer: str
) -> Iterator[list[str]]:
    """Groups of values that are stored together or not at all."""
    yield ["ids", "source_ids", "positions", "source_positions"]
    for name in (trace.graph.resolve("output"), "probabilities"):
        # The likeliest answers are listed anyway; a row of 50,000 can wait until the rest is in.
        if name in trace and stored_bytes(trace, name) <= max_bytes * MAX_OUTPUT_FRACTION:
            yield [name]
    yield [each.name("weights") for each in attentions if not is_pooled(trace, each)]
    for each in spread_out(attentions):
        yield [each.query, each.key, each.value, each.name("mixed")]
    for each in spread_out(attentions):
        yield [each.name(step) for step in ("scores", "scaled", "capped", "masked", "weights")]
    for name in sorted(trace, key=lambda name: not name.startswith(first_layer)):
        yield [name]


def spread_out(attentions: list[AttentionView]) -> list[AttentionView]:
    """The last one, the first, the middle one, and so on between those before."""
    if not attentions:
        return []
    order: list[int] = []
    spans = [(0, len(attentions) - 1)]
    for first, last in spans:  # grows while it is walked through
        order += [last, first]
        middle = (first + last) // 2
        if last - first > 1:
            spans += [(first, middle), (middle, last)]
    return [attentions[index] for index in dict.fromkeys(order)]
