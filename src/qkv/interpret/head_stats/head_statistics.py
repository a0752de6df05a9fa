"""Statistics of every attention head, accumulated text by text in constant memory.

For each head: the attention mass on the keys of each pattern, the entropy of its weights, how
different it is from the other heads of its layer, the length of the vector it adds to the residual
stream, and how far the output moves when it is ablated. A head is named after the pattern that
stands out from chance, if one does.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from qkv.engine import inference
from qkv.interpret.head_stats.patterns import (
    ADJACENT,
    BROAD,
    INDUCTION,
    MIXED,
    POSITION,
    SAME,
    AttentionContext,
    PatternScore,
    repeat_patterns,
    text_patterns,
)
from qkv.interpret.trace import AblateHead, Graph, TokenizedInput, Trace, build_graph, capture_trace
from qkv.model import Model, Translator

MIN_EFFECT = 1e-4  # of the probability, or of a vector's length: below it a head is dead
MAX_WEIGHT_BYTES = 2**29  # of attention weights in memory at a time
MAX_ABLATED_TEXTS = 8  # each text costs a forward pass per head
MIN_EXCESS = 0.3  # of the weight that chance does not explain, for a head to be named after it
BROAD_EVENNESS = 0.9  # of the maximum entropy
MIN_COVERAGE = 0.5  # of all queries must have a key at a distance, for it to be a pattern


@dataclass
class PatternMass:
    """Attention mass (H,) on the keys of a pattern, the mass of uniform attention, and the queries.

    Only queries that see such a key count.
    """

    mass: Tensor
    uniform: float = 0.0
    queries: int = 0


@dataclass
class HeadAccumulator:
    """Sums for the heads of one attention, over all queries so far that see more than one key."""

    heads: int
    patterns: dict[str, PatternMass] = field(default_factory=dict)
    distances: dict[int, PatternMass] = field(default_factory=dict)
    entropy: Tensor = field(init=False)  # bits, (H,)
    evenness: Tensor = field(init=False)  # entropy as a fraction of its maximum, (H,)
    js_distance: Tensor = field(init=False)  # Jensen–Shannon, of each pair of heads, (H, H)
    output_norm: Tensor = field(init=False)  # of what a head adds to the residual stream, (H,)
    queries: int = 0
    compared_queries: int = 0  # those that js_distance is summed over

    def __post_init__(self) -> None:
        self.entropy = self._zeros()
        self.evenness = self._zeros()
        self.output_norm = self._zeros()
        self.js_distance = torch.zeros(self.heads, self.heads, dtype=torch.float64)

    def add_patterns(
        self, weights: Tensor, context: AttentionContext, patterns: dict[str, Tensor]
    ) -> None:
        """Add the weights (H, T, S) of one text on the keys of each pattern, a grid (T, S)."""
        for name, grid in patterns.items():
            grid = grid & context.visible & context.has_choice[:, None]
            total = self.patterns.setdefault(name, PatternMass(self._zeros()))
            total.mass += weights[:, grid].double().sum(dim=1)
            total.uniform += float(context.uniform[grid].double().sum())
            total.queries += int(grid.any(dim=1).sum())

    def add_distances(self, weights: Tensor, context: AttentionContext) -> None:
        """The same for every distance from query to key."""
        grid = context.visible & context.has_choice[:, None]
        distances = context.distance[grid]
        lowest = int(distances.min())
        index = distances - lowest
        size = int(index.max()) + 1
        mass = torch.zeros(size, self.heads, dtype=torch.float64)
        mass.index_add_(0, index, weights[:, grid].double().T)
        uniform = torch.zeros(size, dtype=torch.float64)
        uniform.index_add_(0, index, context.uniform[grid].double())
        queries = torch.bincount(index, minlength=size)
        for i in range(size):
            total = self.distances.setdefault(i + lowest, PatternMass(self._zeros()))
            total.mass += mass[i]
            total.uniform += float(uniform[i])
            total.queries += int(queries[i])

    def add_entropy(self, weights: Tensor, context: AttentionContext) -> None:
        """Add the entropy of each head's weights."""
        entropy = _head_entropies(weights[:, context.has_choice])
        maximum = context.visible[context.has_choice].sum(dim=1).log2()
        self.queries += entropy.shape[1]
        self.entropy += entropy.sum(dim=1)
        self.evenness += (entropy / maximum).sum(dim=1)

    def add_js_distance(self, weights: Tensor, context: AttentionContext) -> None:
        """Add the Jensen–Shannon distance between each pair of heads."""
        rows = weights[:, context.has_choice]  # (H, queries, S)
        entropy = _head_entropies(rows)
        self.compared_queries += rows.shape[1]
        for i, j in combinations(range(self.heads), 2):
            mean_entropy = entropy_bits((rows[i].double() + rows[j].double()) / 2)
            # JSD(P, Q) = H((P + Q) / 2) − (H(P) + H(Q)) / 2; rounding may make it negative.
            divergence = mean_entropy - (entropy[i] + entropy[j]) / 2
            self.js_distance[i, j] += divergence.clamp(min=0.0).sqrt().sum()

    def _zeros(self) -> Tensor:
        return torch.zeros(self.heads, dtype=torch.float64)


def entropy_bits(weights: Tensor) -> Tensor:
    """Entropy along the last axis: 0 for a single key, log₂ n for n equal ones."""
    return -torch.xlogy(weights, weights).sum(dim=-1) / torch.log(torch.tensor(2.0)).double()


def _head_entropies(rows: Tensor) -> Tensor:
    """(H, queries, S) -> (H, queries); head by head, so only one is in float64 at a time."""
    return torch.stack([entropy_bits(row.double()) for row in rows])


def output_norms(trace: Trace, attention: str) -> Tensor:
    """The length of the vector each head adds, summed over positions: (H,)."""
    # The output projection is linear, so each head adds its own block of columns of it.
    outputs = trace[f"{attention}.mixed"][0].double()  # (H, T, E)
    H, _, E = outputs.shape
    name = f"{attention}.output"
    if name in trace.graph.nodes:
        weight = trace.parameters[trace.node(name).inputs[1]].detach().cpu().double()
        outputs = outputs @ weight.reshape(-1, H, E).permute(1, 2, 0)  # (H, T, D)
    return _norm(outputs).sum(dim=-1)


def ablation_effects(
    model: Model, graph: Graph, text: TokenizedInput, ablations: list[AblateHead]
) -> Iterator[float]:
    """How far the output for one text moves when each of these heads is ablated."""
    device = model.embedding.weight.device
    ids = [torch.tensor([row], device=device) for row in text.ids.values()]
    is_distribution = "probabilities" in graph.nodes
    with inference(model):
        before = _output(model(*ids), is_distribution)
        for ablation in ablations:
            with ablation.applied(model, graph):
                after = _output(model(*ids), is_distribution)
            yield float(_output_change(before, after, is_distribution))


def _output(output: Tensor, is_distribution: bool) -> Tensor:
    if is_distribution:
        return output.float().softmax(dim=-1)
    return output.float()


def _output_change(before: Tensor, after: Tensor, is_distribution: bool) -> Tensor:
    """Total variation, the mean over positions; for a vector the change relative to its length."""
    if is_distribution:
        return (after - before).abs().sum(dim=-1).mean() / 2
    return (_norm(after - before) / _norm(before).clamp(min=1e-12)).mean()


def _norm(vectors: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return norm


class HeadRecorder:
    """Accumulates the statistics of every attention of a model, by its name in a trace."""

    def __init__(self, model: Model, special_ids: frozenset[int]) -> None:
        self.model = model
        self.special_ids = special_ids
        self.graph = build_graph(model)
        suffixes = (".attention.weights", ".cross.weights")
        weights = (name for name in self.graph.nodes if name.endswith(suffixes))
        self.attentions = [name.removesuffix(".weights") for name in weights]
        self.accumulators: dict[str, HeadAccumulator] = {}
        self.text_ids: dict[str, set[int]] = defaultdict(set)  # by sequence, without special ones
        self.effects: dict[AblateHead, float] = defaultdict(float)  # summed over ablated texts
        self.repeat_effects: dict[AblateHead, float] = {}  # on the first repeated sequence
        self.ablated_texts = 0

    def add_text(self, text: TokenizedInput) -> None:
        """Add a text: where the heads attend, what they add, and the effect of ablating them."""
        for name, trace in self._traces(text, ("weights", "seen", "mixed")):
            weights = trace[f"{name}.weights"][0]
            context = self._context(trace, name, text)
            accumulator = self.accumulators.setdefault(name, HeadAccumulator(len(weights)))
            accumulator.output_norm += output_norms(trace, name)
            if context.has_choice.any():
                accumulator.add_patterns(weights, context, text_patterns(context))
                accumulator.add_distances(weights, context)
                accumulator.add_entropy(weights, context)
                accumulator.add_js_distance(weights, context)
        for sequence, ids in text.ids.items():
            self.text_ids[sequence].update(set(ids) - self.special_ids)
        if self.ablated_texts < MAX_ABLATED_TEXTS:
            self.ablated_texts += 1
            for head, effect in self._ablate_all(text).items():
                self.effects[head] += effect

    def add_repeat(self, text: TokenizedInput) -> None:
        """Add a sequence that occurs twice, for the patterns that need one."""
        for name, trace in self._traces(text, ("weights", "seen")):
            weights = trace[f"{name}.weights"][0]
            context = self._context(trace, name, text)
            self.accumulators[name].add_patterns(weights, context, repeat_patterns(context))
            self.accumulators[name].add_js_distance(weights, context)
        if not self.repeat_effects:
            self.repeat_effects = self._ablate_all(text)

    def effect(self, head: AblateHead) -> float:
        """The mean effect of ablating the head."""
        return self.effects[head] / self.ablated_texts

    def is_dead(self, head: AblateHead) -> bool:
        """Whether ablating it changes nothing, neither in texts nor in repeated sequences."""
        return max(self.effect(head), self.repeat_effects.get(head, 0.0)) < MIN_EFFECT

    def _traces(
        self, text: TokenizedInput, quantities: Sequence[str]
    ) -> Iterator[tuple[str, Trace]]:
        """Each attention with a trace of it: from one forward pass, or several if large."""
        longest = max(map(len, text.ids.values()))
        stacks = (getattr(self.model.config, side, None) for side in ("encoder", "decoder"))
        heads = max(stack.attention.heads for stack in stacks if stack is not None)
        group_size = max(1, MAX_WEIGHT_BYTES // (4 * heads * longest**2))
        for first in range(0, len(self.attentions), group_size):
            group = self.attentions[first : first + group_size]
            names = (f"{name}.{quantity}" for name in group for quantity in quantities)
            keep = [name for name in names if name in self.graph.nodes]
            trace = capture_trace(self.model, text, keep=keep, graph=self.graph)
            for name in group:
                yield name, trace

    def _context(self, trace: Trace, name: str, text: TokenizedInput) -> AttentionContext:
        node = trace.node(f"{name}.weights")
        queries = torch.tensor(text.ids[node.sequences["T"]])
        keys = torch.tensor(text.ids[node.sequences["S"]])
        visible = torch.ones(len(queries), len(keys), dtype=torch.bool)
        if f"{name}.seen" in trace:
            mask = trace[f"{name}.seen"]
            visible = mask.reshape(mask.shape[-2:])  # (T, S)
        return AttentionContext(
            queries=queries,
            keys=keys,
            special=torch.tensor([int(id) in self.special_ids for id in keys]),
            visible=visible,
            cross=name.endswith(".cross"),
            shared_vocabulary=not isinstance(self.model, Translator) or self.model.source is None,
        )

    def _ablate_all(self, text: TokenizedInput) -> dict[AblateHead, float]:
        """The effect of ablating each head."""
        heads = []
        for name, accumulator in self.accumulators.items():
            heads += [head_ablation(name, head) for head in range(accumulator.heads)]
        effects = ablation_effects(self.model, self.graph, text, heads)
        return dict(zip(heads, effects, strict=True))


def head_ablation(attention: str, head: int) -> AblateHead:
    """The edit that ablates a head of this attention."""
    stack, layer, part = attention.split(".")
    return AblateHead(stack, int(layer), head, part)


@dataclass(frozen=True)
class HeadKind:
    """name: of the head; pattern: the strongest one, whether it stands out or not."""

    name: str
    pattern: str
    score: PatternScore
    offset: int | None


def classify_head(scores: dict[str, PatternScore], offset: int | None, evenness: float) -> HeadKind:
    """The kind of a head.

    Patterns that need a repeat win over others: such a head rests elsewhere, often on the first
    token, as long as nothing is repeated.
    """
    strong = {name: score for name, score in scores.items() if score.excess >= MIN_EXCESS}
    strong_repeats = {name: score for name, score in strong.items() if name in (INDUCTION, SAME)}
    best = _strongest(strong_repeats or scores)
    score = scores[best]
    best_offset = None
    if best == POSITION:
        best_offset = offset
    if best in strong:
        return HeadKind(best, best, score, best_offset)
    if evenness >= BROAD_EVENNESS:
        return HeadKind(BROAD, BROAD, PatternScore(evenness, 1.0, score.queries), None)
    return HeadKind(MIXED, best, score, best_offset)


def pattern_scores(
    accumulator: HeadAccumulator, head: int, cross: bool
) -> tuple[dict[str, PatternScore], int | None]:
    """The score of every pattern, and the distance that the pattern "position" refers to."""
    scores = {}
    for name, mass in accumulator.patterns.items():
        if mass.queries:
            scores[name] = _score(mass, head)
    named = () if cross else tuple(ADJACENT.values())
    distances = {}
    for distance, mass in accumulator.distances.items():
        if distance not in named and mass.queries >= MIN_COVERAGE * accumulator.queries:
            distances[distance] = _score(mass, head)
    if not distances:
        return scores, None
    offset = max(distances, key=lambda distance: (distances[distance].excess, -abs(distance)))
    return scores | {POSITION: distances[offset]}, offset


def _strongest(scores: dict[str, PatternScore]) -> str:
    return max(scores, key=lambda name: scores[name].excess)


def _score(mass: PatternMass, head: int) -> PatternScore:
    n = mass.queries
    return PatternScore(float(mass.mass[head]) / n, mass.uniform / n, n)
