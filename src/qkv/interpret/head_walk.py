"""From a trace to the walk through one head: the steps and arithmetic of a worksheet.

Every number is the model's own. Each step is also recomputed from its inputs by the operation
that the trace names for it, and the two must agree.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from qkv.errors import QkvError, UsageError
from qkv.interpret.head_wording import describe
from qkv.interpret.matrix import Matrix, column_labels, unique_labels
from qkv.interpret.step import Walk, WalkStep
from qkv.interpret.trace import Graph, Node, Trace
from qkv.interpret.trace.operations import (
    BlockDiagonalToHeads,
    ElementwiseAdd,
    InputValue,
    LinearToHeads,
    LowRankToHeads,
    MaskScores,
    MatMul,
    Opaque,
    Operation,
    Rotate,
    ScaleScores,
)
from qkv.interpret.trace.recompute import to_numpy

TOLERANCE = 1e-4  # float32 against float64; relative where a number is larger than 1

# What a step is called in the trace, where that differs from its name in the walk.
TRACE_NAMES = {"q": "query", "k": "key", "v": "value", "output": "mixed"}

# Projections whose weights are known to belong to one head each.
PROJECTIONS = (LinearToHeads, BlockDiagonalToHeads, LowRankToHeads)

AnyOperation = TypeVar("AnyOperation", bound=Operation)


@dataclass(frozen=True)
class HeadLocation:
    """One head of a model; layers and heads are counted from 0, as in the names of a trace."""

    stack: str  # encoder or decoder
    layer: int
    part: str  # attention or cross
    head: int

    @property
    def name(self) -> str:
        """The prefix of the attention's values in a trace, as in decoder.0.attention."""
        return f"{self.stack}.{self.layer}.{self.part}"

    def __str__(self) -> str:
        if self.part == "cross":
            return f"{self.stack} layer {self.layer}, cross attention, head {self.head}"
        return f"{self.stack} layer {self.layer}, head {self.head}"


def locate_head(
    graph: Graph, heads: int, layer: int = 0, head: int = 0, cross: bool = False, side: str = ""
) -> HeadLocation:
    """The location of a head; a UsageError names the ones there are.

    side: encoder or decoder of an encoder–decoder, by default the decoder.
    """
    stacks = [name for name in ("decoder", "encoder") if graph.layer_count(name)]
    stack = side or stacks[0]
    if stack not in stacks:
        raise UsageError(f"this model has no {stack}; it has {' and '.join(stacks)}")
    layers = graph.layer_count(stack)
    if not 0 <= layer < layers:
        raise UsageError(f"layer={layer} does not exist; the {stack} has layers 0 to {layers - 1}")
    if not 0 <= head < heads:
        raise UsageError(f"head={head} does not exist; there are heads 0 to {heads - 1}")
    location = HeadLocation(stack, layer, "cross" if cross else "attention", head)
    if f"{location.name}.scores" in graph.nodes:
        return location
    if location.name in graph.nodes:
        # The attention is a module from outside the package, which the trace has as one step.
        raise UsageError(
            f"{location.name} has no heads to walk through: {graph.nodes[location.name].equation}"
        )
    raise UsageError(f"the {stack} has no cross attention; only a translator's decoder has")


def head_value_names(graph: Graph, location: HeadLocation) -> list[str]:
    """The names of all traced values that a walk through this attention needs."""
    inside = [name for name in graph.nodes if name.startswith(f"{location.name}.")]
    inputs = {name for inner in inside for name in graph.nodes[inner].inputs}
    return [name for name in graph.nodes if name in inputs or name in inside]


def walk_head(trace: Trace, location: HeadLocation) -> Walk:
    """X, its projections, Q, K, V, scores, scaled, mask, weights and output of one head."""
    if trace.rows:
        raise UsageError("a walk needs every query, but the trace holds a few; leave out rows=")
    builder = _HeadWalk(trace, location)
    builder.build()
    walk = Walk(f"{location} of {_quoted_text(trace)}", tuple(builder.steps.values()))
    for step in walk:
        _check_step(walk, step)
    return walk


@dataclass
class _HeadWalk:
    """Builds the steps in order from the nodes of a trace."""

    trace: Trace
    location: HeadLocation
    steps: dict[str, WalkStep] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def build(self) -> None:
        grid = self._node("scores")
        self.queries = unique_labels(self.trace.tokens[grid.sequences["T"]])
        self.keys = unique_labels(self.trace.tokens[grid.sequences["S"]])
        x = self._add_input("x", self._node("query").inputs[0], self.queries)
        memory = x
        # Cross attention: queries and keys run along different sequences.
        if grid.sequences["T"] != grid.sequences["S"]:
            memory = self._add_input("source_x", self._node("key").inputs[0], self.keys)
        q = self._project("query", "q", x, self.queries)
        k = self._project("key", "k", memory, self.keys)
        v = self._project("value", "v", memory, self.keys)
        last = self._add_grid("scores", q, k)
        # A model without scaling has no step for it.
        if self._operation("scaled", ScaleScores).factor != 1.0:
            last = self._add_grid("scaled", last)
        if self._has("capped"):
            last = self._add_grid("capped", last)
        weights = self._add_grid("weights", self._mask(last))
        output = self._value_of_head("mixed")
        operation = self._node("mixed").operation
        self._add("output", self.queries, output, operation, (weights, v))

    def _mask(self, last: str) -> str:
        """The scores with bias and mask; the trace adds both in one step, the walk in two."""
        if self._has("bias"):
            bias = self._value_of_head("bias")
            self._add("bias", self.queries, bias, InputValue(), columns=self.keys)
            sums = self.steps[last].value + bias
            inputs = (last, "bias")
            self._add("biased", self.queries, sums, ElementwiseAdd(), inputs, self.keys)
            last = "biased"
        if self._has("seen"):
            attends = to_numpy(self.trace[f"{self.location.name}.seen"])
            mask = np.where(attends.reshape(len(self.queries), -1), 0.0, -np.inf)
            origin = InputValue("by definition")
            self._add("mask", self.queries, mask, origin, columns=self.keys)
            masked = self._value_of_head("masked")
            inputs = (last, "mask")
            self._add("masked", self.queries, masked, MaskScores(mask=True), inputs, self.keys)
            last = "masked"
        return last

    def _add_input(self, name: str, node: str, rows: tuple[str, ...]) -> str:
        value = to_numpy(self.trace[node])[0].astype(np.float64)
        self._add(name, rows, value, InputValue())
        return name

    def _project(self, part: str, letter: str, x: str, rows: tuple[str, ...]) -> str:
        """Queries, keys or values of this head, normalized and rotated where the model does so."""
        if isinstance(self._node(part).operation, PROJECTIONS):
            inputs = self._add_weights(part, letter, x)
            operation: Operation = MatMul(bias=len(inputs) == 3)
        else:
            # A projection from outside the package: its weights cannot be split by heads.
            inputs = (x,)
            operation = Opaque(self._projection_class(part))
        self._add(letter, rows, self._value_of_head(part), operation, inputs)
        last = letter
        if self._has(f"{part}_norm"):
            last = self._normalize(part, letter, rows)
        if self._has(f"{part}_rotated"):
            last = self._rotate(part, letter, last, rows)
        return last

    def _projection_class(self, part: str) -> str:
        operation = self._node(part).operation
        if isinstance(operation, Opaque):
            return operation.module
        return type(operation).__name__

    def _add_weights(self, part: str, letter: str, x: str) -> tuple[str, ...]:
        """This head's columns of the projection as steps; the names of the product's inputs."""
        node = self._node(part)
        weights = [self._parameter(name) for name in node.inputs[1:]]
        width = self._value_of_head(part).shape[1]
        head = self._kv_head(part)
        columns = slice(head * width, (head + 1) * width)
        if isinstance(node.operation, BlockDiagonalToHeads):
            x_slice = self.steps[x].value[:, columns]
            self._add(f"{x}_{letter}", self.steps[x].rows, x_slice, InputValue())
            self._add(f"w_{letter}", column_labels("x", width), weights[0][head], InputValue())
            return f"{x}_{letter}", f"w_{letter}"
        if isinstance(node.operation, LowRankToHeads):
            return self._add_factors(x, weights[0], weights[1][:, columns])
        # nn.Linear stores (outputs, inputs); the walk shows (inputs, outputs), as on paper.
        weight = weights[0][columns].T
        self._add(f"w_{letter}", column_labels("x", len(weight)), weight, InputValue())
        if len(weights) == 1:
            return x, f"w_{letter}"
        self._add(f"b_{letter}", ("bias",), weights[1][columns][None], InputValue())
        return x, f"w_{letter}", f"b_{letter}"

    def _add_factors(self, x: str, down: Matrix, up: Matrix) -> tuple[str, ...]:
        """A low-rank projection of the values: x · v_down, and the inputs of the second product."""
        self._add("v_down", column_labels("x", len(down)), down, InputValue())
        narrow = self.steps[x].value @ down
        self._add("v_narrow", self.steps[x].rows, narrow, MatMul(), (x, "v_down"))
        self._add("v_up", column_labels("r", len(up)), up, InputValue())
        return "v_narrow", "v_up"

    def _normalize(self, part: str, letter: str, rows: tuple[str, ...]) -> str:
        node = self._node(f"{part}_norm")
        inputs = [letter]
        for name in node.inputs[1:]:
            kind = "gain" if name.endswith("weight") else "shift"
            self._add(f"{kind}_{letter}", (kind,), self._parameter(name)[None], InputValue())
            inputs.append(f"{kind}_{letter}")
        value = self._value_of_head(f"{part}_norm")
        self._add(f"{letter}_normed", rows, value, node.operation, tuple(inputs))
        return f"{letter}_normed"

    def _rotate(self, part: str, letter: str, last: str, rows: tuple[str, ...]) -> str:
        node = self._node(f"{part}_rotated")
        assert isinstance(node.operation, Rotate)
        for function, name in zip(("cos", "sin"), node.inputs[1:], strict=True):
            # Queries and keys are rotated by the same angles, shown once.
            if function not in self.steps:
                angles = to_numpy(self.trace[name]).astype(np.float64)
                self._add(function, rows, angles.reshape(len(rows), -1), InputValue())
        value = self._value_of_head(f"{part}_rotated")
        self._add(f"{letter}_turned", rows, value, node.operation, (last, "cos", "sin"))
        return f"{letter}_turned"

    def _add_grid(self, name: str, *inputs: str) -> str:
        """A step with a row per query and a column per key, made as the trace says."""
        value = self._value_of_head(name)
        self._add(name, self.queries, value, self._node(name).operation, inputs, self.keys)
        return name

    def _node(self, part: str) -> Node:
        return self.trace.node(f"{self.location.name}.{part}")

    def _has(self, part: str) -> bool:
        return f"{self.location.name}.{part}" in self.trace.graph.nodes

    def _operation(self, part: str, kind: type[AnyOperation]) -> AnyOperation:
        operation = self._node(part).operation
        assert isinstance(operation, kind)
        return operation

    def _parameter(self, name: str) -> Matrix:
        return to_numpy(self.trace.parameters[name]).astype(np.float64)

    def _kv_head(self, part: str) -> int:
        """The index of the head that this one reads keys and values from; there may be fewer."""
        heads = self.trace[f"{self.location.name}.query"].shape[1]
        kv_heads = self.trace[f"{self.location.name}.{part}"].shape[1]
        return int(self.location.head * kv_heads // heads)

    def _value_of_head(self, part: str) -> Matrix:
        heads = to_numpy(self.trace[f"{self.location.name}.{part}"])[0].astype(np.float64)
        head = self.location.head
        if part.startswith(("key", "value")):
            head = self._kv_head(part)
        return np.asarray(heads[head])

    def _add(
        self,
        name: str,
        rows: tuple[str, ...],
        value: Matrix,
        operation: Operation,
        inputs: tuple[str, ...] = (),
        columns: tuple[str, ...] = (),
    ) -> None:
        if f"{self.location.name}.{TRACE_NAMES.get(name, name)}" in self.trace.overrides:
            # An edit has set the value, so it does not follow from other steps.
            operation = InputValue()
            inputs = ()
        if rows is self.keys and not columns:
            row_axis = "key"
        elif len(rows) > 1:
            row_axis = "query"
        else:
            row_axis = ""
        cross = self.location.part == "cross"
        self.steps[name] = describe(name, rows, columns, value, operation, inputs, row_axis, cross)


def _check_step(walk: Walk, step: WalkStep) -> None:
    """A QkvError if the model's numbers differ from those that the step's inputs give."""
    if step.is_input:
        return
    recomputed = step.operation.compute(*walk.inputs(step))
    # −∞ − −∞ is NaN, so cells that both sides hide are compared as zeros.
    hidden = np.isneginf(step.value) & np.isneginf(recomputed)
    expected = np.where(hidden, 0.0, recomputed)
    difference = np.abs(expected - np.where(hidden, 0.0, step.value))
    worst = float((difference / np.maximum(1.0, np.abs(expected))).max(initial=0))
    if not worst <= TOLERANCE:  # NaN fails too
        raise QkvError(f"{step.name} of the model is {worst:.2g} away from what its inputs give")


def _quoted_text(trace: Trace) -> str:
    text = trace.metadata.get("text") or " ".join(next(iter(trace.tokens.values())))
    if len(text) > 60:
        text = text[:59] + "…"
    return f'"{text}"'
