"""The nodes of one attention: queries, keys, values, scores, weights and the weighted sum."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from qkv.attention import Window, alibi_slopes, scale_factor
from qkv.interpret.trace.graph import (
    Axes,
    GraphBuilder,
    HookPoint,
    is_foreign,
    operation_of,
    unsupported_module,
)
from qkv.interpret.trace.operations import (
    AlibiBias,
    AttentionMask,
    ConcatHeads,
    MaskScores,
    Opaque,
    Operation,
    RelativeBias,
    Rotate,
    ScaleScores,
    Scores,
    SoftCap,
    Softmax,
    WeightedSum,
)
from qkv.model import Attention, BlockDiagonalProjection, CrossAttention, HeadProjection
from qkv.model.position import AlibiPositions, Position, RelativePositions

QUERY_HEADS = ("B", "H", "T", "E")
KEY_HEADS = ("B", "K", "S", "E")  # K < H where query heads share keys and values
SCORES = ("B", "H", "T", "S")


@dataclass(frozen=True)
class LayerContext:
    """What the attention of a layer gets from its stack."""

    stack: str
    sequence: str
    causal: bool
    window: Window | None
    rotation: str | None  # prefix of the nodes `.cos` and `.sin`; None without RoPE
    adjacent: bool  # whether RoPE rotates neighbouring features
    position: Position  # may add a bias to the scores
    opaque_scores: bool  # whether a scheme from outside this package changes the scores
    memory: str | None  # the encoder's output, for cross attention


def positions_name(sequence: str) -> str:
    """The name of the node with a sequence's positions."""
    return "positions" if sequence in ("text", "target") else f"{sequence}_positions"


def add_attention(
    b: GraphBuilder,
    module: nn.Module,
    name: str,
    path: str,
    call: int,
    x: str,
    context: LayerContext,
) -> str:
    """Self-attention, or cross attention to the memory; returns the name of its output.

    An attention from outside this package becomes one step: its own operation, or an opaque one.
    So does the self-attention of a position scheme from outside that changes the scores.
    """
    by_position = context.opaque_scores and not isinstance(module, CrossAttention)
    if is_foreign(module) or by_position:
        operation: Operation = Opaque(type(module).__name__)
        parameters: Sequence[str] = ()
        if is_foreign(module):
            operation, parameters = operation_of(module)
        inputs = (x, *(f"{path}.{parameter}" for parameter in parameters))
        sequences = {"T": context.sequence}
        return b.add(name, operation, inputs, ("B", "T", "D"), sequences, HookPoint(path, call))
    if not isinstance(module, Attention):
        raise unsupported_module(module)
    return _AttentionNodes(b, module, name, path, call, context).add(x)


@dataclass(frozen=True)
class _AttentionNodes:
    """Adds the nodes of one attention module at one of its calls."""

    b: GraphBuilder
    module: Attention
    name: str
    path: str
    call: int
    context: LayerContext

    def add(self, x: str) -> str:
        """All nodes, from what enters the attention to its output."""
        source = x
        if self.is_cross:
            assert self.context.memory is not None
            source = self.context.memory
        q = self._rotated_projection("query", x, "0")
        k = self._rotated_projection("key", source, "1")
        v = self._projection("value", source)
        weights = self._weights(q, k)
        hook_point = HookPoint(f"{self.path}.core", self.call)
        mixed = self._add("mixed", WeightedSum(), (weights, v), QUERY_HEADS, hook_point)
        # Joining the heads is a reshape without a module: it shows as the projection's argument.
        hook_point = HookPoint(f"{self.path}.output", self.call, "argument")
        joined = self._add("joined", ConcatHeads(), (mixed,), ("B", "T", "H·E"), hook_point)
        return self._module("output", joined, ("B", "T", "D"))

    @property
    def is_cross(self) -> bool:
        return isinstance(self.module, CrossAttention)

    def _rotated_projection(self, part: str, x: str, argument: str) -> str:
        """Queries or keys, with their norm and rotation (RoPE) where the model has them."""
        x = self._projection(part, x)
        axes = self.b.nodes[x].axes
        x = self._module(f"{part}_norm", x, axes)
        # Cross attention has no common positions: Su et al. 2021 rotate within one sequence.
        if self.context.rotation is None or self.is_cross:
            return x
        inputs = (x, f"{self.context.rotation}.cos", f"{self.context.rotation}.sin")
        hook_point = HookPoint(f"{self.path}.core", self.call, "argument", argument)
        return self._add(f"{part}_rotated", Rotate(self.context.adjacent), inputs, axes, hook_point)

    def _projection(self, part: str, x: str) -> str:
        return self._module(part, x, QUERY_HEADS if part == "query" else KEY_HEADS)

    def _weights(self, q: str, k: str) -> str:
        """softmax(mask(q·kᵀ × scale)), one node per step."""
        core = self.module.core
        # softmax(QKᵀ ÷ √d_k) V, Vaswani et al. 2017, equation 1; a model may scale otherwise.
        d_k = self._key_width()
        x = self._step("scores", Scores(), (q, k))
        x = self._step("scaled", ScaleScores(scale_factor(d_k, core.scale), d_k), (x,))
        if core.cap is not None:
            # Gemma 2 bounds the scores before the mask, so that −∞ stays −∞.
            x = self._step("capped", SoftCap(core.cap), (x,))
        bias = self._bias()
        mask = self._mask()
        added = [name for name in (bias, mask) if name is not None]
        x = self._step("masked", MaskScores(bias is not None, mask is not None), (x, *added))
        return self._step("weights", Softmax(), (x,))

    def _key_width(self) -> int:
        """d_k: the width of one head's queries and keys."""
        query = self.module.query
        if isinstance(query, BlockDiagonalProjection):
            return query.weight.shape[-1]
        assert isinstance(query, HeadProjection)
        return query.out_features // query.heads

    def _bias(self) -> str | None:
        """The bias that depends on the distance from query to key: ALiBi's or T5's."""
        scheme = self.context.position
        if self.is_cross:
            return None
        # Press et al. 2022: a penalty that grows with the distance, steeper for some heads.
        if isinstance(scheme, AlibiPositions):
            slopes = alibi_slopes(scheme.heads, torch.float64).tolist()
            return self._add_mask("bias", AlibiBias(tuple(slopes)), SCORES)
        # Raffel et al. 2020 (T5): one learned number per head and bucket of distances.
        if isinstance(scheme, RelativePositions):
            operation = RelativeBias(scheme.config.max_distance, scheme.config.bidirectional)
            return self._add_mask(
                "bias", operation, SCORES, f"{self.context.stack}.position.weight"
            )
        return None

    def _mask(self) -> str | None:
        """Which keys each query may attend to; None where it is all of them."""
        window = self.context.window
        if self.is_cross or not (self.context.causal or window):
            return None
        if window is None:
            operation = AttentionMask(self.context.causal)
        else:
            operation = AttentionMask(self.context.causal, window.before, window.after)
        return self._add_mask("seen", operation, ("T", "S"))

    def _add_mask(self, key: str, operation: Operation, axes: Axes, *parameters: str) -> str:
        positions = positions_name(self.context.sequence)
        inputs = (positions, positions, *parameters)  # of the queries, of the keys
        hook_point = HookPoint(f"{self.path}.core", self.call, "mask", key)
        return self._add(key, operation, inputs, axes, hook_point)

    def _step(self, step: str, operation: Operation, inputs: tuple[str, ...]) -> str:
        hook_point = HookPoint(f"{self.path}.core", self.call, "step", step)
        return self._add(step, operation, inputs, SCORES, hook_point)

    def _module(self, part: str, x: str, axes: Axes) -> str:
        module = self.module.get_submodule(part)
        hook_point = HookPoint(f"{self.path}.{part}", self.call)
        name = f"{self.name}.{part}"
        return self.b.add_module(name, module, x, axes, self._sequences(axes), hook_point)

    def _add(
        self,
        part: str,
        operation: Operation,
        inputs: tuple[str, ...],
        axes: Axes,
        hook_point: HookPoint,
    ) -> str:
        name = f"{self.name}.{part}"
        return self.b.add(name, operation, inputs, axes, self._sequences(axes), hook_point)

    def _sequences(self, axes: Axes) -> dict[str, str]:
        """Queries run along the layer's sequence; keys of cross attention along the source."""
        keys = "source" if self.is_cross else self.context.sequence
        sequences = {"T": self.context.sequence, "S": keys}
        return {axis: sequence for axis, sequence in sequences.items() if axis in axes}
