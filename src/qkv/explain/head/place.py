"""Which attention of a model is meant: its stack, layer, part and head."""

from dataclasses import dataclass

from qkv.errors import UsageError
from qkv.explain.trace import Graph


@dataclass(frozen=True)
class Place:
    """Counted from 0, as in the names of a trace."""

    stack: str  # encoder or decoder
    layer: int
    part: str  # attention or cross
    head: int

    @property
    def name(self) -> str:
        return f"{self.stack}.{self.layer}.{self.part}"

    def __str__(self) -> str:
        kind = {"attention": "", "cross": "cross attention, "}[self.part]
        return f"{self.stack} layer {self.layer}, {kind}head {self.head}"


def place_of(
    graph: Graph, heads: int, layer: int = 0, head: int = 0, cross: bool = False, side: str = ""
) -> Place:
    """The attention asked for; a UsageError says which there are.

    side: of an encoder–decoder, the encoder or (if nothing is said) the decoder.
    """
    stacks = [name for name in ("decoder", "encoder") if f"{name}.0" in graph.aliases]
    stack = side or stacks[0]
    if stack not in stacks:
        raise UsageError(f"this model has no {stack}; it has {' and '.join(stacks)}")
    layers = sum(name.startswith(f"{stack}.") for name in graph.aliases)
    if not 0 <= layer < layers:
        raise UsageError(f"layer {layer} is asked for; the {stack} has layers 0 to {layers - 1}")
    if not 0 <= head < heads:
        raise UsageError(f"head {head} is asked for; there are heads 0 to {heads - 1}")
    place = Place(stack, layer, "cross" if cross else "attention", head)
    if f"{place.name}.scores" not in graph.nodes:
        raise UsageError(f"the {stack} has no cross attention; only a translator's decoder has")
    return place


def values_of(graph: Graph, place: Place) -> list[str]:
    """The names of all values a walk through that attention shows."""
    inside = [name for name in graph.nodes if name.startswith(f"{place.name}.")]
    given = {given for name in inside for given in graph.nodes[name].inputs}
    return [name for name in graph.nodes if name in given or name in inside]
