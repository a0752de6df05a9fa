"""How the page arranges and names the steps of a trace: by layer, group and what is outside."""

import re
from dataclasses import dataclass, field

from qkv.interpret.page.attentions import MASK_STEPS, has_heads
from qkv.interpret.trace import Node, Trace
from qkv.interpret.trace.operations import MaskScores

LAYER = re.compile(r"(?P<stack>encoder|decoder)\.(?P<layer>\d+)\.(?P<part>.+)")


@dataclass
class StepGroup:
    """Consecutive steps of one sublayer; attention: its name, if the steps have heads."""

    title: str
    attention: str | None
    names: list[str] = field(default_factory=list)


@dataclass
class LayerSteps:
    """The groups of one layer, in order."""

    stack: str
    number: int
    groups: list[StepGroup] = field(default_factory=list)

    @property
    def has_attention(self) -> bool:
        return any(group.attention for group in self.groups)

    @property
    def names(self) -> list[str]:
        return [name for group in self.groups for name in group.names]


@dataclass
class OuterSteps:
    """The steps before, between or after the layers."""

    title: str
    names: list[str] = field(default_factory=list)


def group_steps(trace: Trace) -> tuple[list[LayerSteps], list[OuterSteps]]:
    """Every captured value but the masks, each in exactly one group.

    A layer without a captured attention has no head to select, so it is among the outer steps.
    """
    layers: list[LayerSteps] = []
    outer: list[OuterSteps] = []
    was_in_layer = False
    for name in trace:
        match = LAYER.fullmatch(name)
        if match is None:
            if was_in_layer or not outer:
                # "After" instead of "Between" is decided at the end, when no layer follows.
                title = "Between the layers" if layers else "Before the layers"
                outer.append(OuterSteps(title))
            outer[-1].names.append(name)
        elif name.rpartition(".")[2] not in MASK_STEPS:
            layer = _current_layer(layers, match["stack"], int(match["layer"]))
            _add_step(layer, match["part"], name, has_heads(trace, name))
        was_in_layer = match is not None
    if layers and outer and outer[-1].title.startswith("Between"):
        outer[-1].title = "After the layers"
    for layer in layers:
        if not layer.has_attention:
            title = f"{layer.stack.capitalize()}, layer {layer.number}"
            outer.append(OuterSteps(title, layer.names))
    return [layer for layer in layers if layer.has_attention], outer


def _current_layer(layers: list[LayerSteps], stack: str, number: int) -> LayerSteps:
    if not layers or (layers[-1].stack, layers[-1].number) != (stack, number):
        layers.append(LayerSteps(stack, number))
    return layers[-1]


def _add_step(layer: LayerSteps, part: str, name: str, by_head: bool) -> None:
    attention = name.rpartition(".")[0] if by_head else None
    title = _group_title(part, by_head)
    groups = layer.groups
    if not groups or (groups[-1].title, groups[-1].attention) != (title, attention):
        groups.append(StepGroup(title, attention))
    groups[-1].names.append(name)


def _group_title(part: str, by_head: bool) -> str:
    if part.startswith("feed_forward"):
        return "Feed-forward"
    attention = "cross attention" if part.startswith("cross") else "attention"
    if by_head:
        return attention.capitalize()
    if part.endswith("_in"):
        return f"Into {attention}"
    return f"Out of {attention}"


# By the last part of the name: title and sentence, in the plain words of the page.
STEP_TEXTS = {
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


def step_title(node: Node) -> str:
    """The heading of a step."""
    if node.name == "output":
        titles = {"V": "Scores of all tokens", "label": "Scores of the labels"}
        return titles.get(node.axes[-1], "The vector")
    default = (node.title.capitalize(), "")
    return STEP_TEXTS.get(_last_part(node), default)[0]


def step_sentence(node: Node) -> str:
    """What the step is for; empty if there is nothing to say."""
    if node.name == "output":
        return "What the model answers with."
    if isinstance(node.operation, MaskScores) and not node.operation.mask:
        return "Nothing is hidden from any query here."
    return STEP_TEXTS.get(_last_part(node), ("", ""))[1]


def step_corner(node: Node) -> str:
    """What runs down and what runs across."""
    if node.axes[-2:] == ("T", "S"):
        return "query ↓ key →"
    if node.axes[-1] == "T":
        return "position ↓"
    across = {"V": "token", "label": "label"}.get(node.axes[-1], "feature")
    if node.axes[-2:-1] in (("T",), ("S",)):
        return f"position ↓ {across} →"
    return f"{across} →"


def _last_part(node: Node) -> str:
    return node.name.rpartition(".")[2]
