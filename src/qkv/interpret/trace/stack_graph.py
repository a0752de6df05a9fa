"""The nodes of a stack: positions, then layer after layer, each sublayer with its residual."""

from dataclasses import dataclass

import torch

from qkv.attention import Window
from qkv.interpret.trace.attention_graph import LayerContext, add_attention, positions_name
from qkv.interpret.trace.graph import (
    GraphBuilder,
    HookPoint,
    is_foreign,
    operation_of,
    unsupported_module,
)
from qkv.interpret.trace.operations import (
    AddLearnedPositions,
    AddSinusoids,
    ElementwiseAdd,
    ElementwiseMultiply,
    Operation,
    RopeAngles,
)
from qkv.model import (
    Block,
    FeedForward,
    GatedFeedForward,
    Layers,
    NoResidual,
    NormThenAdd,
    ParallelBlock,
    PassThrough,
    ResidualAdd,
)
from qkv.model.position import LearnedPositions, Position, RopePosition, SinusoidalPositions

STATES = ("B", "T", "D")
INNER = ("B", "T", "F")  # the feed-forward's hidden features


def add_stack(
    b: GraphBuilder,
    name: str,
    stack: Layers,
    x: str,
    sequence: str,
    memory: str | None = None,
    causal: bool = False,
) -> str:
    """All layers of an encoder or decoder; returns the name of the states that come out."""
    sequences = {"T": sequence}
    x = _add_position(b, name, stack.position, x, sequence)
    for part in ("norm_in", "widen"):
        path = f"{name}.{part}"
        x = b.add_module(path, getattr(stack, part), x, STATES, sequences, HookPoint(path))
    b.stack_inputs.append(x)
    calls: dict[int, int] = {}  # of each block, which several layers may share
    rotations: dict[int, str | None] = {}  # local and global layers may rotate differently
    for layer, block_index in enumerate(stack.block_of):
        # ALBERT calls the same block for several layers (Lan et al. 2020).
        call = calls.get(block_index, -1) + 1
        calls[block_index] = call
        path = f"{name}.{block_index}"
        pattern = stack.pattern_of[layer]
        position = stack.patterns[pattern].position
        if pattern not in rotations:
            prefix = f"{name}.local" if pattern else name
            rotations[pattern] = _add_rotation(b, prefix, position, sequence, path, call)
        windows = [
            part for part in stack.patterns[pattern].window.parts if isinstance(part, Window)
        ]
        context = LayerContext(
            stack=name,
            sequence=sequence,
            causal=causal,
            window=windows[0] if windows else None,
            rotation=rotations[pattern],
            adjacent=isinstance(position, RopePosition) and position.config.interleaved,
            position=stack.position,
            opaque_scores=_changes_scores(position) or _changes_scores(stack.position),
            memory=memory,
        )
        block = getattr(stack, str(block_index))
        x = _LayerNodes(b, block, f"{name}.{layer}", path, call, context).add(x)
        b.aliases[f"{name}.{layer}"] = x
    path = f"{name}.norm_out"
    return b.add_module(path, stack.norm_out, x, STATES, sequences, HookPoint(path))


@dataclass(frozen=True)
class _LayerNodes:
    """Adds the nodes of one layer; `path` is its block, which may be called by other layers too."""

    b: GraphBuilder
    block: Block
    name: str
    path: str
    call: int
    context: LayerContext

    def add(self, x: str) -> str:
        """All nodes, from what enters the layer to its output."""
        if isinstance(self.block, ParallelBlock):  # both sublayers read the same x
            attention = self._attention("attention", x)
            feed_forward = self._feed_forward(x)
            x = self._residual("attention", x, attention)
            return self._residual("feed_forward", x, feed_forward)
        x = self._residual("attention", x, self._attention("attention", x))
        if not isinstance(self.block.cross_join, PassThrough):
            x = self._residual("cross", x, self._attention("cross", x))
        return self._residual("feed_forward", x, self._feed_forward(x))

    def _attention(self, part: str, x: str) -> str:
        x = self._module(f"{part}_in", x)
        module = self.block.get_submodule(part)
        name = f"{self.name}.{part}"
        path = f"{self.path}.{part}"
        return add_attention(self.b, module, name, path, self.call, x, self.context)

    def _feed_forward(self, x: str) -> str:
        x = self._module("feed_forward_in", x)
        module = self.block.feed_forward
        if is_foreign(module):
            return self._module("feed_forward", x)
        if not isinstance(module, FeedForward):
            raise unsupported_module(module)
        if isinstance(module, GatedFeedForward):
            # GLU variants, Shazeer 2020: the activation of one projection gates the other.
            gate = self._module("feed_forward.gate", x, INNER)
            gate = self._module("feed_forward.activation", gate, INNER)
            up = self._module("feed_forward.up", x, INNER)
            x = self.b.add(
                f"{self.name}.feed_forward.gated",
                ElementwiseMultiply(),
                (gate, up),
                INNER,
                {"T": self.context.sequence},
                HookPoint(f"{self.path}.feed_forward.down", self.call, "argument"),
            )
        else:
            x = self._module("feed_forward.up", x, INNER)
            x = self._module("feed_forward.activation", x, INNER)
        return self._module("feed_forward.down", x)

    def _residual(self, part: str, x: str, y: str) -> str:
        """x + y with the norms around it that the model's norm placement asks for."""
        name = f"{part}_join"
        join = getattr(self.block, name)
        # Gemma 2 and Swin v2 norm the output of a sublayer before adding it.
        if isinstance(join, NormThenAdd):
            y = self._module(f"{name}.norm", y)
        if isinstance(join, NoResidual):
            x = y
        elif isinstance(join, ResidualAdd):
            x = self.b.add(
                f"{self.name}.{name}",
                ElementwiseAdd(),
                (x, y),
                STATES,
                {"T": self.context.sequence},
                HookPoint(f"{self.path}.{name}", self.call),
            )
        return self._module(f"{part}_out", x)

    def _module(self, part: str, x: str, axes: tuple[str, ...] = STATES) -> str:
        return self.b.add_module(
            f"{self.name}.{part}",
            self.block.get_submodule(part),
            x,
            axes,
            {"T": self.context.sequence},
            HookPoint(f"{self.path}.{part}", self.call),
        )


def _add_position(b: GraphBuilder, name: str, position: Position, x: str, sequence: str) -> str:
    """Embeddings plus positions, for the schemes that add to the embeddings."""
    inputs: tuple[str, ...] = (x, positions_name(sequence))
    operation: Operation
    if isinstance(position, LearnedPositions):
        operation = AddLearnedPositions(position.offset)
        inputs = (*inputs, f"{name}.position.weight")
    elif isinstance(position, SinusoidalPositions):
        config = position.config
        operation = AddSinusoids(config.base, config.interleaved, config.endpoint, config.offset)
    elif is_foreign(position) and type(position).embed is not Position.embed:
        operation, parameters = operation_of(position)
        inputs = (*inputs, *(f"{name}.position.{parameter}" for parameter in parameters))
    else:
        return x
    # The sum has no module of its own: it is what the first norm is given.
    hook_point = HookPoint(f"{name}.norm_in", 0, "argument")
    return b.add(f"{name}.position", operation, inputs, STATES, {"T": sequence}, hook_point)


def _changes_scores(position: Position) -> bool:
    """Whether a scheme from outside this package rotates queries and keys, or biases the scores.

    The steps of attention cannot be told apart then, so the attention is one opaque step.
    """
    kind = type(position)
    return is_foreign(position) and (
        kind.rope is not Position.rope or kind.mask is not Position.mask
    )


def _add_rotation(
    b: GraphBuilder, prefix: str, position: Position, sequence: str, path: str, call: int
) -> str | None:
    """The cosines and sines of RoPE; returns their prefix, or None where nothing is rotated."""
    if not isinstance(position, RopePosition):
        return None
    config = position.config
    cpu = torch.device("cpu")
    frequencies = config.scaling.frequencies(config.base, position.width, torch.float64, cpu)
    for function in ("cos", "sin"):
        operation = RopeAngles(
            function, tuple(frequencies.tolist()), config.interleaved, config.scaling.amplitude()
        )
        b.add(
            f"{prefix}.{function}",
            operation,
            (positions_name(sequence),),
            ("T", "E"),
            {"T": sequence},
            HookPoint(path, call, "rotation", function),
        )
    return prefix
