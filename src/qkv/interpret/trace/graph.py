"""The graph of a model: every value of a forward pass by name, known before any pass is run.

Names mirror the module tree, as in `decoder.0.attention.weights`; modules that compute nothing (an
identity, dropout at inference) have no node. Each node knows the operation that computes it, the
operation's inputs, and the hook point where the model computes it (see `capture`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import nn

from qkv.errors import UsageError, unknown
from qkv.interpret.trace.operations import (
    Activation,
    BlockDiagonalToHeads,
    InputValue,
    L2Normalize,
    LayerNormalization,
    Linear,
    LinearToHeads,
    LowRankToHeads,
    Opaque,
    Operation,
    RMSNormalization,
    ScaleBy,
)
from qkv.model import Scale, SquaredReLU, UnitLength, UnitOffsetRMSNorm
from qkv.model import attention as projection

Axes = tuple[str, ...]
Sequences = dict[str, str]  # axis of positions -> the sequence it runs along


@dataclass(frozen=True)
class HookPoint:
    """Where a forward hook finds a value: a module, which call of it, and what part of the call.

    A block that several layers share is called once per layer, so calls are counted from 0.
    """

    module: str  # its path in the model
    call: int = 0
    kind: Literal["result", "argument", "step", "mask", "rotation"] = "result"
    key: str = "0"  # which argument, step of attention, or side of a mask or rotation


@dataclass(frozen=True)
class Node:
    """One named value. Its inputs are other nodes or parameters of the model.

    sequences: for each axis of positions its sequence, as in {"T": "target", "S": "source"}.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...] = ()
    axes: Axes = ()
    sequences: Sequences = field(default_factory=dict)
    hook_point: HookPoint | None = None  # None for inputs and for what is derived from other nodes

    @property
    def title(self) -> str:
        """The last part of the name, with spaces."""
        return self.name.rpartition(".")[2].replace("_", " ")

    @property
    def equation(self) -> str:
        """The operation's formula on one line of plain text."""
        return self.operation.equation

    @property
    def latex(self) -> str:
        """The operation's formula in LaTeX."""
        return self.operation.latex

    @property
    def is_input(self) -> bool:
        """Whether it enters the model from outside."""
        return isinstance(self.operation, InputValue)

    @property
    def by_row(self) -> bool:
        """Whether it can be computed for some queries alone."""
        return self.hook_point is not None and self.hook_point.kind in ("step", "mask")


@dataclass(frozen=True)
class Graph:
    """All nodes in the order they are computed."""

    nodes: Mapping[str, Node]
    aliases: Mapping[str, str]  # `decoder.0` stands for the output of that layer
    stack_inputs: tuple[str, ...] = ()  # what enters the first layer of each stack

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __getitem__(self, name: str) -> Node:
        return self.nodes[self.resolve(name)]

    def resolve(self, name: str) -> str:
        """The name of the node that `name` or the alias `name` stands for."""
        target = self.aliases.get(name, name)
        if target not in self.nodes:
            raise UsageError(unknown("value", name, [*self.nodes, *self.aliases]))
        return target

    @property
    def layers(self) -> list[str]:
        """The ids, what enters the first layer of each stack, and the output of each layer."""
        ids = [name for name in ("source_ids", "ids") if name in self.nodes]
        outputs = [target for name, target in self.aliases.items() if name != "output"]
        return [*ids, *self.stack_inputs, *outputs]

    def layer_count(self, stack: str) -> int:
        """The layers of the encoder or decoder; 0 if the model has none of that name."""
        # decoder.0 is the alias of what the decoder's first layer passes on.
        return sum(name.startswith(f"{stack}.") for name in self.aliases)


class ModuleOperation(NamedTuple):
    """What a module computes from its input and these of its parameters."""

    operation: Operation
    parameters: tuple[str, ...] = ()


class GraphBuilder:
    """Collects nodes in order; every `add…` returns the name that later nodes take as input."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.aliases: dict[str, str] = {}
        self.stack_inputs: list[str] = []

    def add(
        self,
        name: str,
        operation: Operation,
        inputs: tuple[str, ...],
        axes: Axes,
        sequences: Sequences,
        hook_point: HookPoint | None,
    ) -> str:
        """Add one node."""
        if name in self.nodes:
            raise AssertionError(f"two values are called {name}")
        self.nodes[name] = Node(name, operation, inputs, axes, sequences, hook_point)
        return name

    def add_input(self, name: str, description: str, axes: Axes, sequences: Sequences) -> str:
        """Add a value that enters the model from outside."""
        return self.add(name, InputValue(description), (), axes, sequences, None)

    def add_module(
        self,
        name: str,
        module: nn.Module,
        x: str,
        axes: Axes,
        sequences: Sequences,
        hook_point: HookPoint,
    ) -> str:
        """Add the output of a module whose input is x; an identity adds nothing and returns x."""
        if is_identity(module):
            return x
        operation, parameters = operation_of(module)
        paths = [f"{hook_point.module}.{parameter}" for parameter in parameters]
        return self.add(name, operation, (x, *paths), axes, sequences, hook_point)

    def graph(self) -> Graph:
        """The graph of all nodes so far."""
        return Graph(self.nodes, self.aliases, tuple(self.stack_inputs))


def operation_of(module: nn.Module) -> ModuleOperation:
    """The operation a module computes.

    A module from outside this package may bring its own: a method `trace_operation()` that returns
    an `Operation` and the names of the parameters it takes. Without one it becomes an `Opaque`
    step. A module of ours that has no operation (one with int8 weights) raises a UsageError.
    """
    # Asked first, so that a subclass of one of our modules can say what it does differently.
    own = getattr(module, "trace_operation", None)
    if own is not None:
        return ModuleOperation(*own())
    if isinstance(module, nn.GELU):
        tanh = module.approximate == "tanh"
        return ModuleOperation(Activation("gelu_tanh" if tanh else "gelu"))
    for kind, describe in _DESCRIPTIONS.items():
        if isinstance(module, kind):
            return describe(module)
    if is_foreign(module):
        return ModuleOperation(Opaque(type(module).__name__))
    raise unsupported_module(module)


def is_foreign(module: nn.Module) -> bool:
    """Whether the module's class was defined outside this package and outside torch."""
    return type(module).__module__.partition(".")[0] not in ("qkv", "torch")


def is_identity(module: nn.Module) -> bool:
    """Whether the module returns its input."""
    return isinstance(module, nn.Identity)


def unsupported_module(module: nn.Module) -> UsageError:
    """The error for a module that cannot be traced."""
    return UsageError(
        f"a {type(module).__name__} cannot be traced; trace the model as it was trained, "
        "not one quantized to int8"
    )


def _weight_and_bias(module: nn.Module) -> tuple[str, ...]:
    return ("weight",) if module.bias is None else ("weight", "bias")


def _linear(module: nn.Linear) -> ModuleOperation:
    return ModuleOperation(Linear(module.bias is not None), _weight_and_bias(module))


def _linear_to_heads(module: projection.HeadProjection) -> ModuleOperation:
    operation = LinearToHeads(module.bias is not None, module.heads)
    return ModuleOperation(operation, _weight_and_bias(module))


def _factored_to_heads(module: projection.LowRankProjection) -> ModuleOperation:
    return ModuleOperation(LowRankToHeads(module.heads), ("down", "up"))


def _layer_norm(module: nn.LayerNorm) -> ModuleOperation:
    operation = LayerNormalization(module.eps, module.bias is not None)
    return ModuleOperation(operation, _weight_and_bias(module))


def _rms_norm(module: nn.RMSNorm) -> ModuleOperation:
    assert module.eps is not None
    operation = RMSNormalization(module.eps, isinstance(module, UnitOffsetRMSNorm))
    return ModuleOperation(operation, ("weight",))


# The first match counts, so a subclass stands before its base class.
_DESCRIPTIONS: dict[type[nn.Module], Callable[..., ModuleOperation]] = {
    projection.HeadProjection: _linear_to_heads,
    projection.BlockDiagonalProjection: lambda module: ModuleOperation(
        BlockDiagonalToHeads(), ("weight",)
    ),
    projection.LowRankProjection: _factored_to_heads,
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.ReLU: lambda module: ModuleOperation(Activation("relu")),
    nn.SiLU: lambda module: ModuleOperation(Activation("silu")),
    nn.Tanh: lambda module: ModuleOperation(Activation("tanh")),
    SquaredReLU: lambda module: ModuleOperation(Activation("relu2")),
    Scale: lambda module: ModuleOperation(ScaleBy(module.factor)),
    UnitLength: lambda module: ModuleOperation(L2Normalize()),
}
