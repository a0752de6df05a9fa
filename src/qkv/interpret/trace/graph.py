"""The graph of a model, found in its module tree: every value of a forward pass, before any pass.

Names mirror the tree, `decoder.0.attention.weights`; what a tree leaves out (an identity, dropout
that drops nothing) has no node. Values are picked up where modules meet; see `capture`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import nn

from qkv.errors import UsageError, unknown
from qkv.interpret.trace.operations import (
    Activation,
    FactoredLinearToHeads,
    InputValue,
    L2Normalize,
    LayerNormalization,
    Linear,
    LinearToHeads,
    Operation,
    RMSNormalization,
    ScaleBy,
    SlicedLinearToHeads,
    Softmax,
)
from qkv.model import Decoder, Encoder, Model, TextVector, Translator
from qkv.model import attention as projection
from qkv.model.embedding import Scale as TimesModule
from qkv.model.feed_forward import SquaredReLU
from qkv.model.norm import RMSNormAroundOne
from qkv.model.output import Unit as UnitModule

# FOLDED explain/trace/node: One named value of a forward pass: what made it, from what, and
#   where it can be picked up.
# FOLDED explain/trace/modules: Which operation a module of ours computes, and with which of its
#   parameters.

Axes = tuple[str, ...]


@dataclass(frozen=True)
class HookPoint:
    """Where a value shows up: at the so-many-th call of a module, in one of these places.

    A module that several layers share is called once for each of them.
    """

    module: str  # its path in the model
    call: int = 0
    place: Literal["result", "argument", "step", "mask", "rotation"] = "result"
    which: str = "0"  # which argument, which step of attention, which side of a mask or rotation


@dataclass(frozen=True)
class Node:
    """A value by name. Inputs are other nodes or parameters of the model.

    sequences: for each axis of positions its sequence, as in {"T": "target", "S": "source"}.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...] = ()
    axes: Axes = ()
    sequences: dict[str, str] = field(default_factory=dict)
    hook_point: HookPoint | None = (
        None  # None for what is given, and for what follows from other nodes
    )

    @property
    def title(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2].replace("_", " ")

    @property
    def equation(self) -> str:
        return self.operation.equation

    @property
    def latex(self) -> str:
        return self.operation.latex

    @property
    def is_input(self) -> bool:
        return isinstance(self.operation, InputValue)

    @property
    def by_row(self) -> bool:
        """Whether it can be had for some queries alone."""
        return self.hook_point is not None and self.hook_point.place in ("step", "mask")


@dataclass(frozen=True)
class Graph:
    """All nodes in the order they are computed."""

    nodes: Mapping[str, Node]
    aliases: Mapping[str, str]  # a second name: `decoder.0` for what the layer passes on
    stack_inputs: tuple[str, ...] = ()  # what enters the first layer of each stack

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    @property
    def layers(self) -> list[str]:
        """The ids, what enters the first layer of each stack, and what leaves each layer."""
        ids = (name for name in ("source_ids", "ids") if name in self.nodes)
        passed_on = (to for name, to in self.aliases.items() if name != "output")
        return [*ids, *self.stack_inputs, *passed_on]

    def resolve(self, name: str) -> str:
        """The node that goes by this name."""
        found = self.aliases.get(name, name)
        if found not in self.nodes:
            raise UsageError(unknown("value", name, [*self.nodes, *self.aliases]))
        return found

    def __getitem__(self, name: str) -> Node:
        return self.nodes[self.resolve(name)]


class GraphBuilder:
    """Collects nodes; each `add` gives back the name that later nodes take as input."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.nodes: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.stack_inputs: list[str] = []

    def add(
        self,
        name: str,
        operation: Operation,
        inputs: tuple[str, ...],
        axes: Axes,
        sequences: dict[str, str],
        hook_point: HookPoint | None,
    ) -> str:
        if name in self.nodes:
            raise AssertionError(f"two values are called {name}")
        self.nodes[name] = Node(name, operation, inputs, axes, sequences, hook_point)
        return name

    def add_input(self, name: str, what: str, axes: Axes, sequences: dict[str, str]) -> str:
        return self.add(name, InputValue(what), (), axes, sequences, None)

    def graph(self) -> Graph:
        return Graph(self.nodes, self.aliases, tuple(self.stack_inputs))


def build_graph(model: Model) -> Graph:
    """Every value of one forward pass of this model over one text, or one pair of texts."""
    from qkv.interpret.trace.attention_graph import add_embedding, add_inputs, add_output
    from qkv.interpret.trace.stack_graph import add_stack

    b = GraphBuilder(model)
    if isinstance(model, Translator):
        add_inputs(b, "source_ids", "source")
        add_inputs(b, "ids", "target")
        table = "embedding" if model.source is None else "source"
        x = add_embedding(b, "source", model.source_table, table, "source_ids", "source")
        memory = add_stack(b, "encoder", model.encoder, x, "source")
        again = int(model.source is None)  # a shared table is called a second time
        x = add_embedding(b, "embedding", model.embedding, "embedding", "ids", "target", again)
        x = add_stack(b, "decoder", model.decoder, x, "target", memory=memory, causal=True)
        last = add_output(b, model.output, x, "target")
    elif isinstance(model, Decoder | Encoder):
        add_inputs(b, "ids", "text")
        x = add_embedding(b, "embedding", model.embedding, "embedding", "ids", "text")
        if isinstance(model, Decoder):
            x = add_stack(b, "decoder", model.decoder, x, "text", causal=True)
        else:
            x = add_stack(b, "encoder", model.encoder, x, "text")
        last = add_output(b, model.output, x, "text")
    else:
        raise UsageError(f"a {type(model).__name__} is none of the three families")
    b.aliases.setdefault("output", last)
    made = b.nodes[last]
    if not isinstance(model.config.output, TextVector):
        b.add("probabilities", Softmax(), (last,), made.axes, made.sequences, None)
    b.add_input(
        "served", "what the model that answers gave for the same", made.axes, made.sequences
    )
    return b.graph()


class ModuleOperation(NamedTuple):
    """An operation on x and these parameters."""

    operation: Operation
    parameters: tuple[str, ...] = ()


def operation_of(module: nn.Module) -> ModuleOperation:
    """What the module computes; a UsageError if it is none of ours."""
    if isinstance(module, nn.GELU):
        return ModuleOperation(Activation("gelu_tanh" if module.approximate == "tanh" else "gelu"))
    for kind, say in _SAYINGS.items():
        if isinstance(module, kind):
            return say(module)
    raise unsupported_module(module)


def unsupported_module(module: nn.Module) -> UsageError:
    """What is said of a part that is none of ours."""
    return UsageError(
        f"a {type(module).__name__} cannot be opened up; trace the model as it was trained, "
        "not one made for 8 bits"
    )


def is_identity(module: nn.Module) -> bool:
    """Whether it passes on what it gets."""
    return isinstance(module, nn.Identity)


def _linear(module: nn.Linear) -> ModuleOperation:
    biased = module.bias is not None
    return ModuleOperation(Linear(biased), _named(module))


def _to_heads(module: projection.HeadProjection) -> ModuleOperation:
    return ModuleOperation(LinearToHeads(module.bias is not None, module.heads), _named(module))


def _layer_norm(module: nn.LayerNorm) -> ModuleOperation:
    return ModuleOperation(LayerNormalization(module.eps, module.bias is not None), _named(module))


def _rms_norm(module: nn.RMSNorm) -> ModuleOperation:
    around_one = isinstance(module, RMSNormAroundOne)
    assert module.eps is not None
    return ModuleOperation(RMSNormalization(module.eps, around_one), ("weight",))


def _named(module: nn.Module) -> tuple[str, ...]:
    return ("weight", "bias") if module.bias is not None else ("weight",)


# More special kinds before those they are made from.
_SAYINGS: dict[type[nn.Module], Callable[..., ModuleOperation]] = {
    projection.HeadProjection: _to_heads,
    projection.BlockDiagonalProjection: lambda module: ModuleOperation(
        SlicedLinearToHeads(), ("weight",)
    ),
    projection.LowRankProjection: lambda module: ModuleOperation(
        FactoredLinearToHeads(module.heads), ("down", "up")
    ),
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.ReLU: lambda module: ModuleOperation(Activation("relu")),
    nn.SiLU: lambda module: ModuleOperation(Activation("silu")),
    nn.Tanh: lambda module: ModuleOperation(Activation("tanh")),
    SquaredReLU: lambda module: ModuleOperation(Activation("relu2")),
    TimesModule: lambda module: ModuleOperation(ScaleBy(module.factor)),
    UnitModule: lambda module: ModuleOperation(L2Normalize()),
}
