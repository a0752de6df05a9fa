"""The graph of a model, found in its module tree: every value of a forward pass, before any pass.

Names mirror the tree, `decoder.0.attention.weights`; what a tree leaves out (an identity, dropout
that drops nothing) has no node. Values are picked up where modules meet; see `capture`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from qkv.errors import UsageError, unknown
from qkv.explain.trace.node import Axes, Node, Pick
from qkv.explain.trace.operation import Given, Operation, Softmax
from qkv.model import Decoder, Encoder, Model, TextVector, Translator


@dataclass(frozen=True)
class Graph:
    """All nodes in the order they are computed."""

    nodes: Mapping[str, Node]
    aliases: Mapping[str, str]  # a second name: `decoder.0` for what the layer passes on
    entries: tuple[str, ...] = ()  # what enters the first layer of each stack

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    @property
    def layers(self) -> list[str]:
        """The ids, what enters the first layer of each stack, and what leaves each layer."""
        ids = (name for name in ("source_ids", "ids") if name in self.nodes)
        passed_on = (to for name, to in self.aliases.items() if name != "output")
        return [*ids, *self.entries, *passed_on]

    def name(self, asked: str) -> str:
        """The node that goes by this name."""
        found = self.aliases.get(asked, asked)
        if found not in self.nodes:
            raise UsageError(unknown("value", asked, [*self.nodes, *self.aliases]))
        return found

    def __getitem__(self, asked: str) -> Node:
        return self.nodes[self.name(asked)]


class Builder:
    """Collects nodes; each `add` gives back the name that later nodes take as input."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.nodes: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.entries: list[str] = []

    def add(
        self,
        name: str,
        operation: Operation,
        inputs: tuple[str, ...],
        axes: Axes,
        along: dict[str, str],
        pick: Pick | None,
    ) -> str:
        if name in self.nodes:
            raise AssertionError(f"two values are called {name}")
        self.nodes[name] = Node(name, operation, inputs, axes, along, pick)
        return name

    def give(self, name: str, what: str, axes: Axes, along: dict[str, str]) -> str:
        return self.add(name, Given(what), (), axes, along, None)

    def graph(self) -> Graph:
        return Graph(self.nodes, self.aliases, tuple(self.entries))


def graph(model: Model) -> Graph:
    """Every value of one forward pass of this model over one text, or one pair of texts."""
    from qkv.explain.trace.ends import embedded, given_text, scored
    from qkv.explain.trace.layers import stacked

    b = Builder(model)
    if isinstance(model, Translator):
        given_text(b, "source_ids", "source")
        given_text(b, "ids", "target")
        table = "embedding" if model.source is None else "source"
        x = embedded(b, "source", model.source_table, table, "source_ids", "source")
        memory = stacked(b, "encoder", model.encoder, x, "source")
        again = int(model.source is None)  # a shared table is called a second time
        x = embedded(b, "embedding", model.embedding, "embedding", "ids", "target", again)
        x = stacked(b, "decoder", model.decoder, x, "target", memory=memory, causal=True)
        last = scored(b, model.output, x, "target")
    elif isinstance(model, Decoder | Encoder):
        given_text(b, "ids", "text")
        x = embedded(b, "embedding", model.embedding, "embedding", "ids", "text")
        if isinstance(model, Decoder):
            x = stacked(b, "decoder", model.decoder, x, "text", causal=True)
        else:
            x = stacked(b, "encoder", model.encoder, x, "text")
        last = scored(b, model.output, x, "text")
    else:
        raise UsageError(f"a {type(model).__name__} is none of the three families")
    b.aliases.setdefault("output", last)
    made = b.nodes[last]
    if not isinstance(model.config.output, TextVector):
        b.add("probabilities", Softmax(), (last,), made.axes, made.along, None)
    b.give("served", "what the model that answers gave for the same", made.axes, made.along)
    return b.graph()
