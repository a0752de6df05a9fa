"""The nodes of one attention: queries, keys and values, their scores, and what is made of them."""

from dataclasses import dataclass

import torch
from torch import nn

from qkv.attention import alibi_slopes
from qkv.attention.mask import Window
from qkv.attention.reference import scale_factor
from qkv.interpret.trace.graph import (
    Axes,
    GraphBuilder,
    HookPoint,
    is_identity,
    operation_of,
    unsupported_module,
)
from qkv.interpret.trace.operations import (
    AddTokenType,
    AlibiBias,
    AttentionMask,
    ConcatHeads,
    EmbeddingLookup,
    MaskScores,
    Operation,
    Pool,
    RelativeBias,
    Rotate,
    ScaleScores,
    Scores,
    SoftCap,
    Softmax,
    TokenLogits,
    WeightedSum,
)
from qkv.model import output
from qkv.model.attention import Attention, BlockDiagonalProjection, CrossAttention, HeadProjection
from qkv.model.embedding import TokenEmbedding, TokenTypeEmbedding
from qkv.model.norm import Dropout
from qkv.model.position import Position
from qkv.model.position.schemes import AlibiPositions, RelativePositions

# FOLDED explain/trace/ends: Where a model begins and ends: ids to vectors, and states to its
#   answer.


def add_inputs(b: GraphBuilder, ids: str, sequence: str) -> None:
    """The ids of one sequence and the numbers of its positions."""
    b.add_input(ids, "the tokens' numbers", ("B", "T"), {"T": sequence})
    b.add_input(positions(sequence), "0, 1, 2, …", ("T",), {"T": sequence})


def positions(sequence: str) -> str:
    """The name of a sequence's positions."""
    return "positions" if sequence in ("text", "target") else f"{sequence}_positions"


def add_embedding(
    b: GraphBuilder,
    name: str,
    table: TokenEmbedding,
    path: str,
    ids: str,
    sequence: str,
    call: int = 0,
) -> str:
    """The vector of each token, its type added if there are types."""
    axes, sequences = ("B", "T", "D"), {"T": sequence}
    plain = is_identity(table.scale) and not isinstance(table, TokenTypeEmbedding)
    rows = HookPoint(path, call) if plain else HookPoint(f"{path}.scale", call, "argument")
    first = name if plain else f"{name}.rows"
    x = b.add(first, EmbeddingLookup(), (ids, f"{path}.weight"), axes, sequences, rows)
    if not is_identity(table.scale):
        scaled = name if not isinstance(table, TokenTypeEmbedding) else f"{name}.scale"
        x = b.add(
            scaled,
            operation_of(table.scale).operation,
            (x,),
            axes,
            sequences,
            HookPoint(path + ".scale", call),
        )
    if isinstance(table, TokenTypeEmbedding):
        x = b.add(
            name, AddTokenType(), (x, f"{path}.types"), axes, sequences, HookPoint(path, call)
        )
    return x


def add_output(b: GraphBuilder, module: nn.Module, states: str, sequence: str) -> str:
    """The model's answer, by whatever it has for an output; gives the name of the last node."""
    if isinstance(module, output.Pooled):
        return _pooled(b, module, states)
    path = "output"
    if isinstance(module, output.Transformed):
        states = _chain(b, "output.change", module.change, states, {"T": sequence})
        module, path = module.output, "output.output"
    if not isinstance(module, output.TiedLogits):
        raise unsupported_module(module)
    sequences = {"T": sequence}
    if not is_identity(module.scale):
        hook_point = HookPoint(f"{path}.scale")
        times = operation_of(module.scale).operation
        states = b.add("output.scale", times, (states,), ("B", "T", "D"), sequences, hook_point)
    own = isinstance(module, output.UntiedLogits)
    bias = () if module.bias is None else (f"{path}.bias",)
    inputs = (states, f"{path}.weight" if own else "embedding.weight", *bias)
    operation = TokenLogits(module.bias is not None, module.cap)
    return b.add("output", operation, inputs, ("B", "T", "V"), sequences, HookPoint("output"))


def _pooled(b: GraphBuilder, module: output.Pooled, states: str) -> str:
    hook_point = HookPoint("output.change", 0, "argument")
    how = Pool(module.pooling.kind)
    x = b.add("output.pooled", how, (states,), ("B", "D"), {}, hook_point)
    x = _chain(b, "output.change", module.change, x, {})
    return _chain(b, "output.output", module.output, x, {}, last="output")


def _chain(
    b: GraphBuilder, path: str, module: nn.Module, x: str, sequences: dict[str, str], last: str = ""
) -> str:
    """One module, or several one after the other; the last of them may go by another name."""
    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("", module)]
    parts = [(name, part) for name, part in parts if not isinstance(part, Dropout | nn.Identity)]
    axes = ("B", "T", "D") if sequences else ("B", "D")
    for number, (name, part) in enumerate(parts):
        inner = f"{path}.{name}".rstrip(".")
        operation, parameters = operation_of(part)
        end = last and number == len(parts) - 1
        given = (x, *(f"{inner}.{parameter}" for parameter in parameters))
        shown = ("B", "label") if end and isinstance(part, nn.Linear) else axes
        x = b.add(last if end else inner, operation, given, shown, sequences, HookPoint(inner))
    return x


GRID, HEADS, SHARED = ("B", "H", "T", "S"), ("B", "H", "T", "E"), ("B", "K", "S", "E")


@dataclass(frozen=True)
class LayerContext:
    """What a layer's attention is given by its stack."""

    sequence: str
    causal: bool
    window: Window | None
    waves: str | None  # the node of the cosines, without its ending
    adjacent: bool
    distances: Position  # it may add to the scores
    stack: str
    memory: str | None


def add_attention(
    b: GraphBuilder,
    module: Attention,
    name: str,
    path: str,
    call: int,
    x: str,
    context: LayerContext,
) -> str:
    """Self-attention, or cross attention to the memory; gives the name of what comes out."""
    return _Attended(b, module, name, path, call, context).nodes(x)


@dataclass(frozen=True)
class _Attended:
    b: GraphBuilder
    module: Attention
    name: str
    path: str
    call: int
    context: LayerContext

    @property
    def cross(self) -> bool:
        return isinstance(self.module, CrossAttention)

    @property
    def keys(self) -> str:
        """The sequence that is looked at."""
        return "source" if self.cross else self.context.sequence

    def nodes(self, x: str) -> str:
        read = self.context.memory if self.cross else x
        assert read is not None
        q = self._head_by_head("query", x, "0")
        k = self._head_by_head("key", read, "1")
        v = self._projected("value", read)
        weights = self._weights(q, k)
        mixed = self._add(
            "mixed", WeightedSum(), (weights, v), HEADS, HookPoint(f"{self.path}.core", self.call)
        )
        hook_point = HookPoint(f"{self.path}.output", self.call, "argument")
        joined = self._add("joined", ConcatHeads(), (mixed,), ("B", "T", "H·E"), hook_point)
        if is_identity(self.module.output):
            return joined
        operation, parameters = operation_of(self.module.output)
        inputs = (joined, *(f"{self.path}.output.{name}" for name in parameters))
        hook_point = HookPoint(f"{self.path}.output", self.call)
        return self._add("output", operation, inputs, ("B", "T", "D"), hook_point)

    def _head_by_head(self, part: str, x: str, argument: str) -> str:
        """Queries or keys: projected, perhaps normed, perhaps turned by their positions."""
        x = self._projected(part, x)
        norm = getattr(self.module, f"{part}_norm")
        if not is_identity(norm):
            operation, parameters = operation_of(norm)
            path = f"{self.path}.{part}_norm"
            inputs = (x, *(f"{path}.{parameter}" for parameter in parameters))
            axes = self.b.nodes[x].axes
            x = self._add(f"{part}_norm", operation, inputs, axes, HookPoint(path, self.call))
        if self.context.waves is None or self.cross:
            return x
        turned, waves = Rotate(self.context.adjacent), self.context.waves
        hook_point, axes = (
            HookPoint(f"{self.path}.core", self.call, "argument", argument),
            self.b.nodes[x].axes,
        )
        inputs = (x, f"{waves}.cos", f"{waves}.sin")
        return self._add(f"{part}_turned", turned, inputs, axes, hook_point)

    def _projected(self, part: str, x: str) -> str:
        operation, parameters = operation_of(getattr(self.module, part))
        inputs = (x, *(f"{self.path}.{part}.{name}" for name in parameters))
        hook_point = HookPoint(f"{self.path}.{part}", self.call)
        axes = HEADS if part == "query" else SHARED
        return self._add(part, operation, inputs, axes, hook_point)

    def _weights(self, q: str, k: str) -> str:
        mix = self.module.core
        d_k = self._key_width()
        last = self._step("scores", Scores(), (q, k))
        last = self._step("scaled", ScaleScores(scale_factor(d_k, mix.scale), d_k), (last,))
        if mix.cap is not None:
            last = self._step("capped", SoftCap(mix.cap), (last,))
        bias, seen = self._bias(), self._seen()
        operation = MaskScores(bias is not None, seen is not None)
        last = self._step("masked", operation, (last, *filter(None, (bias, seen))))
        return self._step("weights", Softmax(), (last,))

    def _key_width(self) -> int:
        """d_k: how wide one head's queries are."""
        query = self.module.query
        if isinstance(query, BlockDiagonalProjection):
            return query.weight.shape[-1]
        assert isinstance(query, HeadProjection)
        return query.out_features // query.heads

    def _bias(self) -> str | None:
        """What the distance from query to key adds."""
        scheme = self.context.distances
        if self.cross:
            return None
        if isinstance(scheme, AlibiPositions):
            slopes = alibi_slopes(scheme.heads, torch.float64).tolist()
            operation: Operation = AlibiBias(tuple(slopes))
            return self._mask("bias", operation)
        if isinstance(scheme, RelativePositions):
            operation = RelativeBias(scheme.choice.max_distance, scheme.choice.bidirectional)
            return self._mask("bias", operation, (f"{self.context.stack}.position.weight",))
        return None

    def _seen(self) -> str | None:
        window = self.context.window
        if self.cross or not (self.context.causal or window):
            return None
        reach = (None, None) if window is None else (window.before, window.after)
        return self._mask("seen", AttentionMask(self.context.causal, *reach))

    def _mask(self, side: str, operation: Operation, parameters: tuple[str, ...] = ()) -> str:
        where = positions(self.context.sequence)
        axes = ("T", "S") if side == "seen" else ("B", "H", "T", "S")
        hook_point = HookPoint(f"{self.path}.core", self.call, "mask", side)
        return self._add(side, operation, (where, where, *parameters), axes, hook_point)

    def _step(self, step: str, operation: Operation, inputs: tuple[str, ...]) -> str:
        hook_point = HookPoint(f"{self.path}.core", self.call, "step", step)
        return self._add(step, operation, inputs, GRID, hook_point)

    def _add(
        self,
        part: str,
        operation: Operation,
        inputs: tuple[str, ...],
        axes: Axes,
        hook_point: HookPoint,
    ) -> str:
        sides = {"T": self.context.sequence, "S": self.keys}
        sequences = {axis: sequence for axis, sequence in sides.items() if axis in axes}
        return self.b.add(f"{self.name}.{part}", operation, inputs, axes, sequences, hook_point)
