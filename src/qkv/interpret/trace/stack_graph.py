"""The nodes of a stack: positions, then layer after layer, each part context the residual."""

from dataclasses import dataclass

import torch
from torch import nn

from qkv.attention.mask import Window
from qkv.interpret.trace.attention_graph import LayerContext, add_attention, positions
from qkv.interpret.trace.graph import (
    GraphBuilder,
    HookPoint,
    is_identity,
    operation_of,
    unsupported_module,
)
from qkv.interpret.trace.operations import (
    AddLearnedPositions,
    AddSinusoids,
    ElementwiseAdd,
    ElementwiseMultiply,
    RopeAngles,
)
from qkv.model.attention import Attention
from qkv.model.feed_forward import FeedForward, GatedFeedForward
from qkv.model.norm import Add, AddNormed, Keep, Replace
from qkv.model.position import Position
from qkv.model.position.rope import RopePosition
from qkv.model.position.schemes import LearnedPositions, SinusoidalPositions
from qkv.model.stack import Block, Layers, ParallelBlock

STATES = ("B", "T", "D")


def add_stack(
    b: GraphBuilder,
    name: str,
    stack: Layers,
    x: str,
    sequence: str,
    memory: str | None = None,
    causal: bool = False,
) -> str:
    """All layers of an encoder or decoder; gives the name of the states that come out."""
    sequences = {"T": sequence}
    x = _placed(b, name, stack.position, x, sequence)
    x = _through(b, f"{name}.norm_in", stack.norm_in, x, sequences)
    x = _through(b, f"{name}.widen", stack.widen, x, sequences)
    b.stack_inputs.append(x)
    calls: dict[int, int] = {}
    turned: dict[int, bool] = {}
    for layer, run in enumerate(stack.block_of):
        way = stack.pattern_of[layer]
        call = calls[run] = calls.get(run, -1) + 1
        path = f"{name}.{run}"
        waves = f"{name}.local" if way else name
        position = stack.patterns[way].position
        if way not in turned:
            turned[way] = _angles(b, waves, position, sequence, HookPoint(path, call, "rotation"))
        window = [part for part in stack.patterns[way].window.parts if isinstance(part, Window)]
        context = LayerContext(
            sequence=sequence,
            causal=causal,
            window=window[0] if window else None,
            waves=waves if turned[way] else None,
            adjacent=isinstance(position, RopePosition) and position.choice.interleaved,
            distances=stack.position,
            stack=name,
            memory=memory,
        )
        block = getattr(stack, str(run))
        x = _Layer(b, block, f"{name}.{layer}", path, call, context).nodes(x)
        b.aliases[f"{name}.{layer}"] = x
    return _through(b, f"{name}.norm_out", stack.norm_out, x, sequences)


@dataclass(frozen=True)
class _Layer:
    """One layer; `name` counts layers and `path` is the block, which may be called again."""

    b: GraphBuilder
    block: Block
    name: str
    path: str
    call: int
    context: LayerContext

    def nodes(self, x: str) -> str:
        if isinstance(self.block, ParallelBlock):
            mixed, changed = self._attention("attention", x), self._feed_forward(x)
            x = self._joined("attention", x, mixed)
            return self._joined("feed_forward", x, changed)
        x = self._joined("attention", x, self._attention("attention", x))
        if not isinstance(self.block.cross_join, Keep):
            x = self._joined("cross", x, self._attention("cross", x))
        return self._joined("feed_forward", x, self._feed_forward(x))

    def _attention(self, part: str, x: str) -> str:
        x = self._through(f"{part}_in", x)
        module = getattr(self.block, part)
        if not isinstance(module, Attention):
            raise unsupported_module(module)
        names = f"{self.name}.{part}", f"{self.path}.{part}"
        return add_attention(self.b, module, *names, self.call, x, self.context)

    def _feed_forward(self, x: str) -> str:
        x = self._through("feed_forward_in", x)
        module = self.block.feed_forward
        if not isinstance(module, FeedForward):
            raise unsupported_module(module)
        if isinstance(module, GatedFeedForward):
            gate = self._through("feed_forward.gate", x, "F")
            bent = self._through("feed_forward.activation", gate, "F")
            up = self._through("feed_forward.up", x, "F")
            hook_point = HookPoint(f"{self.path}.feed_forward.down", self.call, "argument")
            name, sequences = f"{self.name}.feed_forward.gated", {"T": self.context.sequence}
            x = self.b.add(
                name, ElementwiseMultiply(), (bent, up), ("B", "T", "F"), sequences, hook_point
            )
        else:
            x = self._through("feed_forward.up", x, "F")
            x = self._through("feed_forward.activation", x, "F")
        return self._through("feed_forward.down", x)

    def _joined(self, part: str, x: str, y: str) -> str:
        join, name = getattr(self.block, f"{part}_join"), f"{part}_join"
        if isinstance(join, AddNormed):
            y = self._through(f"{name}.norm", y)
        if isinstance(join, Replace):
            x = y
        elif isinstance(join, Add):
            hook_point, sequences = (
                HookPoint(f"{self.path}.{name}", self.call),
                {"T": self.context.sequence},
            )
            x = self.b.add(
                f"{self.name}.{name}", ElementwiseAdd(), (x, y), STATES, sequences, hook_point
            )
        return self._through(f"{part}_out", x)

    def _through(self, part: str, x: str, width: str = "D") -> str:
        module = self.block.get_submodule(part)
        sequences, names = (
            {"T": self.context.sequence},
            (f"{self.name}.{part}", f"{self.path}.{part}"),
        )
        return _through(self.b, names[0], module, x, sequences, width, names[1], self.call)


def _through(
    b: GraphBuilder,
    name: str,
    module: nn.Module,
    x: str,
    sequences: dict[str, str],
    width: str = "D",
    path: str = "",
    call: int = 0,
) -> str:
    """x through one module, or x itself where there is nothing to go through."""
    if is_identity(module):
        return x
    path = path or name
    operation, parameters = operation_of(module)
    inputs = (x, *(f"{path}.{parameter}" for parameter in parameters))
    return b.add(name, operation, inputs, ("B", "T", width), sequences, HookPoint(path, call))


def _placed(b: GraphBuilder, name: str, position: Position, x: str, sequence: str) -> str:
    """Embeddings with their positions added, where the scheme adds something to them."""
    hook_point, sequences = HookPoint(f"{name}.norm_in", 0, "argument"), {"T": sequence}
    if isinstance(position, LearnedPositions):
        inputs = (x, positions(sequence), f"{name}.position.weight")
        return b.add(
            f"{name}.position",
            AddLearnedPositions(position.offset),
            inputs,
            STATES,
            sequences,
            hook_point,
        )
    if isinstance(position, SinusoidalPositions):
        c = position.choice
        waves, where = (
            AddSinusoids(c.base, c.interleaved, c.endpoint, c.offset),
            positions(sequence),
        )
        return b.add(f"{name}.position", waves, (x, where), STATES, sequences, hook_point)
    return x


def _angles(
    b: GraphBuilder, name: str, position: Position, sequence: str, hook_point: HookPoint
) -> bool:
    """How far positions turn queries and keys; False where they do not."""
    if not isinstance(position, RopePosition):
        return False
    c, cpu = position.choice, torch.device("cpu")
    speeds = tuple(c.scaling.speeds(c.base, position.turned, torch.float64, cpu).tolist())
    for side in ("cos", "sin"):
        operation = RopeAngles(side, speeds, c.interleaved, c.scaling.lengthening())
        where = HookPoint(hook_point.module, hook_point.call, "rotation", side)
        inputs, sequences = (positions(sequence),), {"T": sequence}
        b.add(f"{name}.{side}", operation, inputs, ("T", "E"), sequences, where)
    return True
