"""The nodes of one attention: queries, keys and values, their scores, and what is made of them."""

from dataclasses import dataclass

import torch

from qkv.attention import alibi_slopes
from qkv.attention.mask import Window
from qkv.attention.reference import scale_factor
from qkv.explain.trace.ends import positions
from qkv.explain.trace.graph import Builder
from qkv.explain.trace.modules import does, same
from qkv.explain.trace.node import Axes, Pick
from qkv.explain.trace.operation import (
    Buckets,
    Capped,
    Join,
    Masked,
    Mixed,
    Operation,
    Scaled,
    Scores,
    Seen,
    Slopes,
    Softmax,
    Turned,
)
from qkv.model.attention import Attention, CrossAttention
from qkv.model.position import Position
from qkv.model.position.relative import FixedSlopes, LearnedDistances
from qkv.model.projection import SlicesToHeads, ToHeads

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
            "mixed", Mixed(), (weights, v), HEADS, Pick(f"{self.path}.mix", self.call)
        )
        pick = Pick(f"{self.path}.output", self.call, "argument")
        joined = self._add("joined", Join(), (mixed,), ("B", "T", "H·E"), pick)
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
        turned, waves = Turned(self.around.adjacent), self.around.waves
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
        last = self._step("scaled", Scaled(scale_factor(d_k, mix.scale), d_k), (last,))
        if mix.cap is not None:
            last = self._step("capped", Capped(mix.cap), (last,))
        bias, seen = self._bias(), self._seen()
        operation = Masked(bias is not None, seen is not None)
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
            operation: Operation = Slopes(tuple(slopes))
            return self._mask("bias", operation)
        if isinstance(scheme, LearnedDistances):
            operation = Buckets(scheme.choice.farthest, scheme.choice.both_ways)
            return self._mask("bias", operation, (f"{self.around.stack}.position.weight",))
        return None

    def _seen(self) -> str | None:
        window = self.around.window
        if self.cross or not (self.around.causal or window):
            return None
        reach = (None, None) if window is None else (window.before, window.after)
        return self._mask("seen", Seen(self.around.causal, *reach))

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
