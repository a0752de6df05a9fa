"""How the values of a trace are arranged for a reader: ends, layers, and groups within a layer."""

import re
from dataclasses import dataclass, field

from qkv.explain.page.attentions import LEFT_OUT, is_by_head
from qkv.explain.trace import Trace

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
