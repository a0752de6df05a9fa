"""How the values of a trace are arranged for a reader: ends, layers, and groups within a layer."""

import re
from dataclasses import dataclass, field

from qkv.interpret.page.attentions import LEFT_OUT, is_by_head
from qkv.interpret.trace import Node, Trace
from qkv.interpret.trace.operations import MaskScores

# FOLDED explain/page/wording: What a step is called on the page, and one sentence that says
#   what it is for.

LAYER = re.compile(r"(encoder|decoder)\.(\d+)\.(.+)")


@dataclass
class Group:
    """Neighbouring steps of one part of a layer; attention: its name, if the steps are by head."""

    title: str
    attention: str | None
    names: list[str] = field(default_factory=list)


@dataclass
class Layer:
    """One layer's groups, in order."""

    stack: str
    number: int
    groups: list[Group] = field(default_factory=list)


@dataclass
class End:
    """What is before, between or after the layers."""

    title: str
    names: list[str] = field(default_factory=list)


def chapters(trace: Trace) -> tuple[list[Layer], list[End]]:
    """Every kept value but the masks, each in one place.

    A layer of which no attention was kept is told among the ends.
    """
    layers: list[Layer] = []
    ends: list[End] = []
    within = False
    for name in trace:
        found = LAYER.fullmatch(name)
        if found is None:
            if within or not ends:
                ends.append(End("Between the layers" if layers else "Before the layers"))
            ends[-1].names.append(name)
        elif found[3].rpartition(".")[2] not in LEFT_OUT:
            _put(layers, found[1], int(found[2]), found[3], name, is_by_head(trace, name))
        within = found is not None
    if layers and ends and ends[-1].title.startswith("Between"):
        ends[-1].title = "After the layers"
    closed = [layer for layer in layers if not any(group.attention for group in layer.groups)]
    ends += [
        End(
            f"{layer.stack.capitalize()}, layer {layer.number}",
            [name for group in layer.groups for name in group.names],
        )
        for layer in closed
    ]
    return [layer for layer in layers if layer not in closed], ends


def _put(layers: list[Layer], stack: str, number: int, part: str, name: str, by_head: bool) -> None:
    if not layers or (layers[-1].stack, layers[-1].number) != (stack, number):
        layers.append(Layer(stack, number))
    groups = layers[-1].groups
    attention = name.rpartition(".")[0] if by_head else None
    title = _title(part, by_head)
    if not groups or (groups[-1].title, groups[-1].attention) != (title, attention):
        groups.append(Group(title, attention))
    groups[-1].names.append(name)


def _title(part: str, by_head: bool) -> str:
    if part.startswith("feed_forward"):
        return "Feed-forward"
    cross = part.startswith("cross")
    if by_head:
        return "Cross attention" if cross else "Attention"
    if part.endswith("_in"):
        return "Into cross attention" if cross else "Into attention"
    return "Out of cross attention" if cross else "Out of attention"


# last part of the name: title, sentence
_STEPS = {
    "ids": ("Token numbers", "Each piece of the text has a number in the vocabulary."),
    "source_ids": ("Token numbers of the source", "The number of each piece that is read."),
    "positions": ("Positions", "Where each piece stands, counted from 0."),
    "source_positions": ("Positions in the source", "Where each piece stands, counted from 0."),
    "embedding": (
        "Embeddings",
        "Each token becomes a row of numbers, the same wherever it stands.",
    ),
    "source": ("Embeddings of the source", "Each token that is read becomes a row of numbers."),
    "rows": ("Rows of the table", "The row that the embedding table keeps for each token."),
    "scale": ("Scaled", "All numbers times one factor."),
    "position": ("With positions", "Numbers for the place are added, so that order counts."),
    "cos": ("Cosines", "How far each pair of features turns at each position: the cosine."),
    "sin": ("Sines", "How far each pair of features turns at each position: the sine."),
    "norm_in": ("Normed", "Every position is brought to a common size."),
    "norm_out": ("Normed at the end", "Every position is brought to a common size once more."),
    "widen": ("Widened", "Narrow embeddings are brought to the width of the layers."),
    "attention_in": ("Normed before attention", "Every position is brought to a common size."),
    "cross_in": ("Normed before cross attention", "Every position is brought to a common size."),
    "query": ("Queries", "Each row is the question a position asks."),
    "key": ("Keys", "Each row is what a position answers to."),
    "value": ("Values", "Each row is what a position passes on to those that look at it."),
    "query_norm": ("Queries, normed", "The questions brought to a common size."),
    "key_norm": ("Keys, normed", "The keys brought to a common size."),
    "query_rotated": ("Queries, turned", "Turned by their position, so that distance counts."),
    "key_rotated": ("Keys, turned", "Turned by their position, so that distance counts."),
    "scores": ("Scores", "How well each query matches each key."),
    "scaled": (
        "Scaled scores",
        "All scores times one factor, so that wide heads do not have wilder scores.",
    ),
    "capped": ("Capped scores", "Large scores are bent towards a limit."),
    "masked": ("Masked scores", "A key that may not be seen gets −∞, and e^−∞ is 0."),
    "weights": (
        "Attention weights",
        "Each row shares 100 % of a query's attention among the keys.",
    ),
    "mixed": ("Mixed values", "The values, weighted by attention; what the fused kernel answered."),
    "joined": ("Heads side by side", "What all heads found, head after head."),
    "output": ("Output", "What was found, brought back to the width of the model."),
    "attention_join": ("Added to the stream", "What came in plus what attention found."),
    "cross_join": ("Added to the stream", "What came in plus what was read from the source."),
    "feed_forward_join": ("Added to the stream", "What came in plus what the feed-forward adds."),
    "attention_out": ("Normed after attention", "Every position is brought to a common size."),
    "cross_out": ("Normed after cross attention", "Every position is brought to a common size."),
    "feed_forward_out": ("Normed after the feed-forward", "Brought to a common size."),
    "feed_forward_in": ("Normed before the feed-forward", "Brought to a common size."),
    "gate": ("Gate", "How far each inner feature is to be let through, before bending."),
    "up": ("Up", "Each position by itself, spread out over many inner features."),
    "activation": ("Activation", "Bent: what is well below 0 is cut off."),
    "gated": ("Gated", "What goes up, times its gate."),
    "down": ("Down", "The inner features brought back to the width of the model."),
    "norm": ("Normed before it is added", "Every position is brought to a common size."),
    "pooled": ("One vector for the text", "All positions become one row of numbers."),
    "probabilities": ("Probabilities", "The scores as shares that sum to 1."),
    "served": ("The answer when served", "What the quick model that answers gave for the same."),
}


def title(node: Node) -> str:
    """The heading of a step."""
    if node.name == "output":
        return {"V": "Scores of all tokens", "label": "Scores of the labels"}.get(
            node.axes[-1], "The vector"
        )
    return _STEPS.get(_last(node), (node.title.capitalize(), ""))[0]


def sentence(node: Node) -> str:
    """What the step is for; nothing if there is nothing to say."""
    if node.name == "output":
        return "What the model answers with."
    if isinstance(node.operation, MaskScores) and not node.operation.mask:
        return "Nothing is hidden from any query here."
    return _STEPS.get(_last(node), ("", ""))[1]


def corner(node: Node) -> str:
    """What runs down and what runs across."""
    if node.axes[-2:] == ("T", "S"):
        return "query ↓ key →"
    if node.axes[-1] == "T":
        return "position ↓"
    across = {"V": "token", "label": "label"}.get(node.axes[-1], "feature")
    down = node.axes[-2:-1] in (("T",), ("S",))
    return f"position ↓ {across} →" if down else f"{across} →"


def _last(node: Node) -> str:
    return node.name.rpartition(".")[2]
