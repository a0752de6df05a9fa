"""The nodes of one attention: queries, keys and values, their scores, and what is made of them."""

from dataclasses import dataclass

import torch
from torch import nn

from qkv.attention import alibi_slopes
from qkv.attention.mask import Window
from qkv.attention.reference import scale_factor
from qkv.interpret.trace.graph import Axes, Builder, Pick, cannot_open, does, same
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
from qkv.model.attention import Attention, CrossAttention, SlicesToHeads, ToHeads
from qkv.model.embedding import Table, TypedTable
from qkv.model.norm import Dropout
from qkv.model.position import Position
from qkv.model.position.schemes import FixedSlopes, LearnedDistances

# FOLDED explain/trace/ends: Where a model begins and ends: ids to vectors, and states to its
#   answer.


def given_text(b: Builder, ids: str, sequence: str) -> None:
    """The ids of one sequence and the numbers of its positions."""
    b.give(ids, "the tokens' numbers", ("B", "T"), {"T": sequence})
    b.give(positions(sequence), "0, 1, 2, …", ("T",), {"T": sequence})


def positions(sequence: str) -> str:
    """The name of a sequence's positions."""
    return "positions" if sequence in ("text", "target") else f"{sequence}_positions"


def embedded(
    b: Builder, name: str, table: Table, path: str, ids: str, sequence: str, call: int = 0
) -> str:
    """The vector of each token, its type added if there are types."""
    axes, along = ("B", "T", "D"), {"T": sequence}
    plain = same(table.scale) and not isinstance(table, TypedTable)
    rows = Pick(path, call) if plain else Pick(f"{path}.scale", call, "argument")
    first = name if plain else f"{name}.rows"
    x = b.add(first, EmbeddingLookup(), (ids, f"{path}.weight"), axes, along, rows)
    if not same(table.scale):
        scaled = name if not isinstance(table, TypedTable) else f"{name}.scale"
        x = b.add(
            scaled, does(table.scale).operation, (x,), axes, along, Pick(path + ".scale", call)
        )
    if isinstance(table, TypedTable):
        x = b.add(name, AddTokenType(), (x, f"{path}.types"), axes, along, Pick(path, call))
    return x


def scored(b: Builder, module: nn.Module, states: str, sequence: str) -> str:
    """The model's answer, by whatever it has for an output; gives the name of the last node."""
    if isinstance(module, output.Pooled):
        return _pooled(b, module, states)
    path = "output"
    if isinstance(module, output.Transformed):
        states = _chain(b, "output.change", module.change, states, {"T": sequence})
        module, path = module.output, "output.output"
    if not isinstance(module, output.TiedScores):
        raise cannot_open(module)
    along = {"T": sequence}
    if not same(module.scale):
        pick = Pick(f"{path}.scale")
        times = does(module.scale).operation
        states = b.add("output.scale", times, (states,), ("B", "T", "D"), along, pick)
    own = isinstance(module, output.OwnScores)
    bias = () if module.bias is None else (f"{path}.bias",)
    inputs = (states, f"{path}.weight" if own else "embedding.weight", *bias)
    operation = TokenLogits(module.bias is not None, module.cap)
    return b.add("output", operation, inputs, ("B", "T", "V"), along, Pick("output"))


def _pooled(b: Builder, module: output.Pooled, states: str) -> str:
    pick = Pick("output.change", 0, "argument")
    how = Pool(module.pooling.kind)
    x = b.add("output.pooled", how, (states,), ("B", "D"), {}, pick)
    x = _chain(b, "output.change", module.change, x, {})
    return _chain(b, "output.output", module.output, x, {}, last="output")


def _chain(
    b: Builder, path: str, module: nn.Module, x: str, along: dict[str, str], last: str = ""
) -> str:
    """One module, or several one after the other; the last of them may go by another name."""
    parts = list(module.named_children()) if isinstance(module, nn.Sequential) else [("", module)]
    parts = [(name, part) for name, part in parts if not isinstance(part, Dropout | nn.Identity)]
    axes = ("B", "T", "D") if along else ("B", "D")
    for number, (name, part) in enumerate(parts):
        inner = f"{path}.{name}".rstrip(".")
        operation, parameters = does(part)
        end = last and number == len(parts) - 1
        given = (x, *(f"{inner}.{parameter}" for parameter in parameters))
        shown = ("B", "label") if end and isinstance(part, nn.Linear) else axes
        x = b.add(last if end else inner, operation, given, shown, along, Pick(inner))
    return x


GRID, HEADS, SHARED = ("B", "H", "T", "S"), ("B", "H", "T", "E"), ("B", "K", "S", "E")


@dataclass(frozen=True)
class Around:
    """What a layer's attention is given by its stack."""

    sequence: str
    causal: bool
    window: Window | None
    waves: str | None  # the node of the cosines, without its ending
    adjacent: bool
    distances: Position  # it may add to the scores
    stack: str
    memory: str | None


def attended(
    b: Builder, module: Attention, name: str, path: str, call: int, x: str, around: Around
) -> str:
    """Self-attention, or cross attention to the memory; gives the name of what comes out."""
    return _Attended(b, module, name, path, call, around).nodes(x)


@dataclass(frozen=True)
class _Attended:
    b: Builder
    module: Attention
    name: str
    path: str
    call: int
    around: Around

    @property
    def cross(self) -> bool:
        return isinstance(self.module, CrossAttention)

    @property
    def keys(self) -> str:
        """The sequence that is looked at."""
        return "source" if self.cross else self.around.sequence

    def nodes(self, x: str) -> str:
        read = self.around.memory if self.cross else x
        assert read is not None
        q = self._head_by_head("query", x, "0")
        k = self._head_by_head("key", read, "1")
        v = self._projected("value", read)
        weights = self._weights(q, k)
        mixed = self._add(
            "mixed", WeightedSum(), (weights, v), HEADS, Pick(f"{self.path}.mix", self.call)
        )
        pick = Pick(f"{self.path}.output", self.call, "argument")
        joined = self._add("joined", ConcatHeads(), (mixed,), ("B", "T", "H·E"), pick)
        if same(self.module.output):
            return joined
        operation, parameters = does(self.module.output)
        inputs = (joined, *(f"{self.path}.output.{name}" for name in parameters))
        pick = Pick(f"{self.path}.output", self.call)
        return self._add("output", operation, inputs, ("B", "T", "D"), pick)

    def _head_by_head(self, part: str, x: str, argument: str) -> str:
        """Queries or keys: projected, perhaps normed, perhaps turned by their positions."""
        x = self._projected(part, x)
        norm = getattr(self.module, f"{part}_norm")
        if not same(norm):
            operation, parameters = does(norm)
            path = f"{self.path}.{part}_norm"
            inputs = (x, *(f"{path}.{parameter}" for parameter in parameters))
            axes = self.b.nodes[x].axes
            x = self._add(f"{part}_norm", operation, inputs, axes, Pick(path, self.call))
        if self.around.waves is None or self.cross:
            return x
        turned, waves = Rotate(self.around.adjacent), self.around.waves
        pick, axes = Pick(f"{self.path}.mix", self.call, "argument", argument), self.b.nodes[x].axes
        inputs = (x, f"{waves}.cos", f"{waves}.sin")
        return self._add(f"{part}_turned", turned, inputs, axes, pick)

    def _projected(self, part: str, x: str) -> str:
        operation, parameters = does(getattr(self.module, part))
        inputs = (x, *(f"{self.path}.{part}.{name}" for name in parameters))
        pick = Pick(f"{self.path}.{part}", self.call)
        axes = HEADS if part == "query" else SHARED
        return self._add(part, operation, inputs, axes, pick)

    def _weights(self, q: str, k: str) -> str:
        mix = self.module.mix
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
        if isinstance(query, SlicesToHeads):
            return query.weight.shape[-1]
        assert isinstance(query, ToHeads)
        return query.out_features // query.heads

    def _bias(self) -> str | None:
        """What the distance from query to key adds."""
        scheme = self.around.distances
        if self.cross:
            return None
        if isinstance(scheme, FixedSlopes):
            slopes = alibi_slopes(scheme.heads, torch.float64).tolist()
            operation: Operation = AlibiBias(tuple(slopes))
            return self._mask("bias", operation)
        if isinstance(scheme, LearnedDistances):
            operation = RelativeBias(scheme.choice.farthest, scheme.choice.both_ways)
            return self._mask("bias", operation, (f"{self.around.stack}.position.weight",))
        return None

    def _seen(self) -> str | None:
        window = self.around.window
        if self.cross or not (self.around.causal or window):
            return None
        reach = (None, None) if window is None else (window.before, window.after)
        return self._mask("seen", AttentionMask(self.around.causal, *reach))

    def _mask(self, side: str, operation: Operation, parameters: tuple[str, ...] = ()) -> str:
        where = positions(self.around.sequence)
        axes = ("T", "S") if side == "seen" else ("B", "H", "T", "S")
        pick = Pick(f"{self.path}.mix", self.call, "mask", side)
        return self._add(side, operation, (where, where, *parameters), axes, pick)

    def _step(self, step: str, operation: Operation, inputs: tuple[str, ...]) -> str:
        pick = Pick(f"{self.path}.mix", self.call, "step", step)
        return self._add(step, operation, inputs, GRID, pick)

    def _add(
        self,
        part: str,
        operation: Operation,
        inputs: tuple[str, ...],
        axes: Axes,
        pick: Pick,
    ) -> str:
        sides = {"T": self.around.sequence, "S": self.keys}
        along = {axis: sequence for axis, sequence in sides.items() if axis in axes}
        return self.b.add(f"{self.name}.{part}", operation, inputs, axes, along, pick)
