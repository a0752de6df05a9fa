"""From a trace to the walk through one head: the same steps, names and arithmetic as by hand.

Every number is the model's own; the walk computes each step once more from the shown inputs, and
the two must agree.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from qkv.errors import QkvError, UsageError
from qkv.interpret import head_operations as op
from qkv.interpret.head_operations import Multiplied
from qkv.interpret.matrix import Matrix, column_labels, unique_labels
from qkv.interpret.operation import (
    DividedByRoot,
    Given,
    Masked,
    Mixed,
    Operation,
    Product,
    Sentence,
    Similarity,
    Softmax,
    Step,
    UserWord,
    Walk,
)
from qkv.interpret.trace import Graph, Node, Trace
from qkv.interpret.trace import operations as kinds
from qkv.interpret.trace.recompute import to_numpy

# FOLDED explain/head/place: Which attention of a model is meant: its stack, layer, part and
#   head.
# FOLDED explain/head/wording: What each step of a trained head is called, its equation, and one
#   sentence about it.


@dataclass(frozen=True)
class HeadLocation:
    """Counted from 0, as in the names of a trace."""

    stack: str  # encoder or decoder
    layer: int
    part: str  # attention or cross
    head: int

    @property
    def name(self) -> str:
        return f"{self.stack}.{self.layer}.{self.part}"

    def __str__(self) -> str:
        kind = {"attention": "", "cross": "cross attention, "}[self.part]
        return f"{self.stack} layer {self.layer}, {kind}head {self.head}"


def locate_head(
    graph: Graph, heads: int, layer: int = 0, head: int = 0, cross: bool = False, side: str = ""
) -> HeadLocation:
    """The attention asked for; a UsageError says which there are.

    side: of an encoder–decoder, the encoder or (if nothing is said) the decoder.
    """
    stacks = [name for name in ("decoder", "encoder") if f"{name}.0" in graph.aliases]
    stack = side or stacks[0]
    if stack not in stacks:
        raise UsageError(f"this model has no {stack}; it has {' and '.join(stacks)}")
    layers = sum(name.startswith(f"{stack}.") for name in graph.aliases)
    if not 0 <= layer < layers:
        raise UsageError(f"layer {layer} is asked for; the {stack} has layers 0 to {layers - 1}")
    if not 0 <= head < heads:
        raise UsageError(f"head {head} is asked for; there are heads 0 to {heads - 1}")
    place = HeadLocation(stack, layer, "cross" if cross else "attention", head)
    if f"{place.name}.scores" not in graph.nodes:
        raise UsageError(f"the {stack} has no cross attention; only a translator's decoder has")
    return place


def head_value_names(graph: Graph, place: HeadLocation) -> list[str]:
    """The names of all values a walk through that attention shows."""
    inside = [name for name in graph.nodes if name.startswith(f"{place.name}.")]
    given = {given for name in inside for given in graph.nodes[name].inputs}
    return [name for name in graph.nodes if name in given or name in inside]


# name: title, equation, LaTeX, sentence
_SAYINGS: dict[str, tuple[str, str, str, str]] = {
    "x": ("What goes in", "X", "X", "Each row is what the layers below made of a position."),
    "source_x": ("What is read", "M", "M", "Each row is what the encoder made of a position."),
    "q": ("Queries", "Q = X · W_Q", "Q = X W_Q", "Each row is the question a position asks."),
    "k": ("Keys", "K = X · W_K", "K = X W_K", "Each row is what a position answers to."),
    "v": ("Values", "V = X · W_V", "V = X W_V", "Each row is what a position passes on."),
    "v_narrow": ("Values in the narrow space", "X · V_down", r"X V_{\downarrow}", ""),
    "cos": ("Cosines of the positions", "cos(position × speed)", r"\cos", "How far to turn."),
    "sin": ("Sines of the positions", "sin(position × speed)", r"\sin", "How far to turn."),
    "scores": ("Scores", "Q · Kᵀ", r"Q K^\top", ""),
    "scaled": ("Scaled scores", "scores ÷ √d_k", r"Q K^\top / \sqrt{d_k}", ""),
    "capped": ("Capped scores", "cap · tanh(scaled ÷ cap)", r"c \tanh(\cdot / c)", ""),
    "bias": ("What distances add", "bias", "B", "A number for each distance from query to key."),
    "biased": ("Scores with distances", "scores + bias", r"\cdot + B", ""),
    "mask": ("The mask", "M", "M", "0 where a query may look, −∞ where it may not."),
    "masked": (
        "Masked scores",
        "scores + M",
        r"\cdot + M",
        "A hidden score becomes −∞, and e^−∞ = 0: it will get no weight at all.",
    ),
    "weights": ("Attention weights", "softmax", r"\mathrm{softmax}(\cdot)", ""),
    "output": (
        "Output of the head",
        "weights · V",
        "A V",
        "Each position is now the mean of the values, weighted by its attention.",
    ),
}

_SIDES = {"q": "Query", "k": "Key", "v": "Value"}

_GRIDS = ("scores", "scaled", "capped", "bias", "biased", "mask", "masked", "weights")


def word(
    name: str,
    rows: tuple[str, ...],
    named: tuple[str, ...],
    value: Matrix,
    made_by: Operation,
    over: str,
    place: HeadLocation,
) -> Step:
    """The step with its title, equation and sentence; columns without names are numbered."""
    title, equation, latex, said = _SAYINGS.get(name) or _of_side(name)
    if len(made_by.inputs) == 3 and name in _SIDES:
        equation, latex = f"{equation} + b", f"{latex} + b"
    if name in ("k", "v") and place.part == "cross":
        equation, latex = equation.replace("X", "M"), latex.replace("X", "M")
    if isinstance(made_by, DividedByRoot):
        equation, said = f"scores ÷ √{made_by.d_k}", f"Every score is divided by √{made_by.d_k}."
    if isinstance(made_by, Multiplied):
        factor = f"{made_by.factor:.6g}"
        equation, latex = f"scores × {factor}", rf"{factor}\, Q K^\top"
        said = f"This model multiplies every score by {factor}."
    sentence: Sentence = (said,)
    if isinstance(made_by, Similarity) or name == "weights":
        sentence = _looks(name, rows, named, value)
    grid = name in _GRIDS
    letter = "o" if name == "output" else name[-1] if name[1:2] == "_" else name[0]
    axes = (
        ("query", "key")
        if grid
        else (over if not name.startswith(("w_", "v_d", "v_u")) else "", "")
    )
    return Step(
        name,
        title,
        equation,
        latex,
        rows,
        named or column_labels(letter, value.shape[1]),
        value,
        made_by,
        sentence,
        axes,
    )


def _of_side(name: str) -> tuple[str, str, str, str]:
    """Weights, biases, norms and turned vectors of queries, keys or values."""
    kind, _, letter = name.partition("_")
    if letter in _SIDES:
        side = _SIDES[letter]
        titles = {
            "w": f"{side} weights",
            "b": f"{side} bias",
            "x": f"The slice for {side.lower()}s",
        }
        titles |= {"gain": f"{side} gain", "shift": f"{side} shift"}
        return titles.get(kind, name), name.upper(), name, "Learned in training."
    if kind in _SIDES:
        done = {"normed": "brought to size", "turned": "turned by position"}.get(letter, letter)
        title = f"{'Queries' if kind == 'q' else 'Keys'}, {done}"
        said = {"turned": "Now a product of two depends on how far apart they stand."}.get(
            letter, ""
        )
        return title, f"{kind.upper()} {letter}", kind.upper(), said
    return name, name, r"\mathrm{" + name.replace("_", r"\_") + "}", ""


def _looks(name: str, rows: tuple[str, ...], keys: tuple[str, ...], value: Matrix) -> Sentence:
    """What the last query finds."""
    best = int(np.argmax(value[-1]))
    query = UserWord(rows[-1])
    if name == "scores":
        return (
            "How well each query matches each key; ",
            query,
            " matches ",
            UserWord(keys[best]),
            " best.",
        )
    share = f" gives {100 * value[-1, best]:.0f} % of its attention to "
    return (query, share, UserWord(keys[best]), "; every row sums to 1.")


Kind = TypeVar("Kind", bound=kinds.Operation)

PARTS = {"q": "query", "k": "key", "v": "value", "output": "mixed"}  # other names of steps

CLOSE = 1e-4  # float32 beside float64, as a share of the number where that is larger than 1


def walk_head(trace: Trace, place: HeadLocation) -> Walk:
    """X, its projections, Q, K, V, scores, scaled, mask, weights and output of one head."""
    if trace.rows:
        raise UsageError("a walk needs every query, but only some were kept; trace without rows")
    walker = _Walker(trace, place)
    walker.walk()
    walked = Walk(f"{place} of {_quoted(trace)}", tuple(walker.steps.values()))
    for step in walked:
        _prove(walked, step)
    return walked


@dataclass
class _Walker:
    trace: Trace
    place: HeadLocation
    steps: dict[str, Step] = field(default_factory=dict)

    def walk(self) -> None:
        grid = self._node("scores")
        self.queries, self.keys = (
            unique_labels(self.trace.tokens[grid.sequences[a]]) for a in "TS"
        )
        x = self._input("x", self._node("query").inputs[0], self.queries)
        cross = grid.sequences["T"] != grid.sequences["S"]
        read = self._input("source_x", self._node("key").inputs[0], self.keys) if cross else x
        q = self._projected("query", "q", x, self.queries)
        k = self._projected("key", "k", read, self.keys)
        v = self._projected("value", "v", read, self.keys)
        last = self._grid("scores", Similarity((q, k), range(self._width(q))))
        last = self._scaled(last)
        if self._has("capped"):
            cap = self._operation("capped", kinds.SoftCap).cap
            last = self._grid("capped", op.Capped((last,), cap))
        weights = self._grid("weights", Softmax((self._masked(last),)))
        head = range(self._width(v))
        self._add("output", self.queries, self._of_head("mixed"), Mixed((weights, v), head))

    def _scaled(self, last: str) -> str:
        scale = self._operation("scaled", kinds.ScaleScores)
        if scale.factor == 1.0:
            return last
        if np.isclose(scale.factor, scale.d_k**-0.5):
            return self._grid("scaled", DividedByRoot((last,), scale.d_k))
        return self._grid("scaled", op.Multiplied((last,), scale.factor))

    def _masked(self, last: str) -> str:
        if self._has("bias"):
            bias = self._of_head("bias")
            self._add("bias", self.queries, bias, Given(), self.keys)
            biased = self.steps[last].value + bias
            self._add("biased", self.queries, biased, op.Added((last, "bias")), self.keys)
            last = "biased"
        if self._has("seen"):
            seen = to_numpy(self.trace[f"{self.place.name}.seen"]).reshape(len(self.queries), -1)
            self._add("mask", self.queries, np.where(seen, 0.0, -np.inf), Given(), self.keys)
            last = self._grid("masked", Masked((last, "mask")))
        return last

    def _input(self, name: str, node: str, rows: tuple[str, ...]) -> str:
        value = to_numpy(self.trace[node])[0].astype(np.float64)
        self._add(name, rows, value, Given())
        return name

    def _projected(self, part: str, letter: str, x: str, rows: tuple[str, ...]) -> str:
        """Queries, keys or values of this head, with what is done to them before the scores."""
        node = self._node(part)
        weights = [to_numpy(self.trace.parameters[name]) for name in node.inputs[1:]]
        inputs = self._head_weights(part, letter, x, node, [w.astype(np.float64) for w in weights])
        made_by = op.ProductPlus(inputs) if len(inputs) == 3 else Product(inputs)
        self._add(letter, rows, self._of_head(part), made_by)
        last = letter
        if self._has(f"{part}_norm"):
            last = self._normed(part, letter, rows)
        if self._has(f"{part}_rotated"):
            last = self._turned(part, letter, last, rows)
        return last

    def _head_weights(
        self, part: str, letter: str, x: str, node: Node, weights: list[Matrix]
    ) -> tuple[str, ...]:
        """The columns of the projection that belong to this head, as steps of their own."""
        width, head = self._of_head(part).shape[1], self._shared(part)
        mine, name = slice(head * width, (head + 1) * width), f"w_{letter}"
        if isinstance(node.operation, kinds.SlicedLinearToHeads):
            part_of_x = self.steps[x].value[:, mine]
            self._add(f"{x}_{letter}", self.steps[x].rows, part_of_x, Given())
            self._add(name, column_labels("x", width), weights[0][head], Given())
            return f"{x}_{letter}", name
        if isinstance(node.operation, kinds.FactoredLinearToHeads):
            down, up = weights[0], weights[1][:, mine]
            self._add("v_down", column_labels("x", len(down)), down, Given())
            narrow = self.steps[x].value @ down
            self._add("v_narrow", self.steps[x].rows, narrow, Product((x, "v_down")))
            self._add("v_up", column_labels("r", len(up)), up, Given())
            return "v_narrow", "v_up"
        self._add(name, column_labels("x", weights[0].shape[1]), weights[0][mine].T, Given())
        if len(weights) == 1:
            return x, name
        self._add(f"b_{letter}", ("bias",), weights[1][mine][None], Given())
        return x, name, f"b_{letter}"

    def _normed(self, part: str, letter: str, rows: tuple[str, ...]) -> str:
        node = self._node(f"{part}_norm")
        given = []
        for name in node.inputs[1:]:
            what = "gain" if name.endswith("weight") else "shift"
            value = to_numpy(self.trace.parameters[name]).astype(np.float64)[None]
            self._add(f"{what}_{letter}", (what,), value, Given())
            given.append(f"{what}_{letter}")
        done = node.operation
        if isinstance(done, kinds.LayerNormalization):
            made_by = op.Normed((letter, *given), done.eps)
        else:
            assert isinstance(done, kinds.RMSNormalization)
            made_by = op.Normed((letter, *given), done.eps, False, done.unit_offset)
        self._add(f"{letter}_normed", rows, self._of_head(f"{part}_norm"), made_by)
        return f"{letter}_normed"

    def _turned(self, part: str, letter: str, last: str, rows: tuple[str, ...]) -> str:
        node = self._node(f"{part}_rotated")
        assert isinstance(node.operation, kinds.Rotate)
        for side, name in zip(("cos", "sin"), node.inputs[1:], strict=True):
            if side not in self.steps:
                value = to_numpy(self.trace[name]).astype(np.float64)
                self._add(side, rows, value.reshape(len(rows), -1), Given())
        made_by = op.Turned((last, "cos", "sin"), node.operation.adjacent)
        self._add(f"{letter}_turned", rows, self._of_head(f"{part}_rotated"), made_by)
        return f"{letter}_turned"

    def _grid(self, step: str, made_by: Operation) -> str:
        self._add(step, self.queries, self._of_head(step), made_by, self.keys)
        return step

    def _node(self, part: str) -> Node:
        return self.trace.node(f"{self.place.name}.{part}")

    def _has(self, part: str) -> bool:
        return f"{self.place.name}.{part}" in self.trace.graph.nodes

    def _operation(self, part: str, kind: type[Kind]) -> Kind:
        found = self._node(part).operation
        assert isinstance(found, kind)
        return found

    def _shared(self, part: str) -> int:
        """This head's number among those that make keys and values, which may be fewer."""
        heads = self.trace[f"{self.place.name}.query"].shape[1]
        of_part = self.trace[f"{self.place.name}.{part}"].shape[1]
        return int(self.place.head * of_part // heads)

    def _of_head(self, part: str) -> Matrix:
        value = to_numpy(self.trace[f"{self.place.name}.{part}"])[0].astype(np.float64)
        of_keys = part.startswith(("key", "value"))
        return np.asarray(value[self._shared(part) if of_keys else self.place.head])

    def _width(self, step: str) -> int:
        return int(self.steps[step].value.shape[1])

    def _add(
        self,
        name: str,
        rows: tuple[str, ...],
        value: Matrix,
        made_by: Operation,
        named: tuple[str, ...] = (),
    ) -> None:
        if f"{self.place.name}.{PARTS.get(name, name)}" in self.trace.overrides:
            made_by = Given()  # an edit has set it
        over = "key" if rows is self.keys and not named else "query" if len(rows) > 1 else ""
        self.steps[name] = word(name, rows, named, value, made_by, over, self.place)


def _prove(walk: Walk, step: Step) -> None:
    """The model's numbers and those by hand are the same."""
    if step.is_input:
        return
    by_hand = step.operation.compute(*walk.inputs(step))
    hidden = np.isneginf(step.value) & np.isneginf(by_hand)
    apart = np.abs(np.where(hidden, 0.0, by_hand) - np.where(hidden, 0.0, step.value))
    worst = float((apart / np.maximum(1.0, np.abs(np.where(hidden, 0.0, by_hand)))).max(initial=0))
    if not worst <= CLOSE:
        raise QkvError(f"{step.name} of the model is {worst:.2g} away from what its inputs give")


def _quoted(trace: Trace) -> str:
    text = trace.metadata.get("text") or " ".join(next(iter(trace.tokens.values())))
    return f'"{text if len(text) <= 60 else text[:59] + "…"}"'
