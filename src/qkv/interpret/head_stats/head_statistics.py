"""The heads of a model watched while it reads, one text at a time."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from qkv.engine.batching import inference
from qkv.interpret.head_stats.patterns import (
    BESIDE,
    BROAD,
    INDUCTION,
    MIXED,
    POSITION,
    SAME,
    Score,
    Sight,
    in_repeats,
    in_texts,
)
from qkv.interpret.trace import AblateHead, Graph, TokenizedInput, Trace, build_graph, capture_trace
from qkv.model import Model, Translator

# FOLDED explain/heads/tally: What is counted of the heads of one attention, text after text, in
#   memory that does not grow.
# FOLDED explain/heads/worth: Whether a head matters: how much it adds to the residual, and what
#   its absence changes.
# FOLDED explain/heads/kind: What a head is called: the pattern that stands out from chance, if
#   one does.


@dataclass
class Mass:
    """Weight that fell on the keys of a pattern, (H,), what chance gives, and of how many queries.

    Only queries count that see such a key.
    """

    mass: Tensor
    chance: float = 0.0
    queries: int = 0


@dataclass
class Tally:
    """Sums over all queries so far that had a choice."""

    heads: int
    patterns: dict[str, Mass] = field(default_factory=dict)
    distances: dict[int, Mass] = field(default_factory=dict)
    entropy: Tensor = field(init=False)  # bits, (H,)
    evenness: Tensor = field(init=False)  # entropy as a share of what is possible, (H,)
    apart: Tensor = field(init=False)  # Jensen–Shannon distance of each two heads, (H, H)
    added: Tensor = field(init=False)  # length of what a head adds, (H,)
    queries: int = 0
    compared: int = 0  # queries whose weights were held against those of other heads

    def __post_init__(self) -> None:
        self.entropy, self.evenness, self.added = (self._zeros() for _ in range(3))
        self.apart = torch.zeros(self.heads, self.heads, dtype=torch.float64)

    def count(self, weights: Tensor, sight: Sight, patterns: dict[str, Tensor]) -> None:
        """Weights (H, T, S) of one text on grids (T, S)."""
        for name, grid in patterns.items():
            grid = grid & sight.seen & sight.chosen[:, None]
            here = self.patterns.setdefault(name, Mass(self._zeros()))
            here.mass += weights[:, grid].double().sum(dim=1)
            here.chance += float(sight.chance[grid].double().sum())
            here.queries += int(grid.any(dim=1).sum())

    def count_distances(self, weights: Tensor, sight: Sight) -> None:
        """The same for every distance from query to key."""
        grid = sight.seen & sight.chosen[:, None]
        steps = sight.distance[grid]
        lowest, size = int(steps.min()), int(steps.max() - steps.min()) + 1
        mass = torch.zeros(size, self.heads, dtype=torch.float64)
        mass.index_add_(0, steps - lowest, weights[:, grid].double().T)
        chance = torch.zeros(size, dtype=torch.float64)
        chance.index_add_(0, steps - lowest, sight.chance[grid].double())
        queries = torch.bincount(steps - lowest, minlength=size)
        for at in range(size):
            here = self.distances.setdefault(at + lowest, Mass(self._zeros()))
            here.mass += mass[at]
            here.chance += float(chance[at])
            here.queries += int(queries[at])

    def count_spread(self, weights: Tensor, sight: Sight) -> None:
        """How evenly each head looks."""
        entropy = _entropies(weights[:, sight.chosen])
        possible = sight.seen[sight.chosen].sum(dim=1).log2()
        self.queries += entropy.shape[1]
        self.entropy += entropy.sum(dim=1)
        self.evenness += (entropy / possible).sum(dim=1)

    def count_apart(self, weights: Tensor, sight: Sight) -> None:
        """How differently each two heads look."""
        rows = weights[:, sight.chosen]  # (H, queries, S)
        entropy = _entropies(rows)
        self.compared += rows.shape[1]
        for one, other in combinations(range(self.heads), 2):
            middle = bits((rows[one].double() + rows[other].double()) / 2)
            divergence = middle - (entropy[one] + entropy[other]) / 2
            self.apart[one, other] += divergence.clamp(min=0.0).sqrt().sum()

    def _zeros(self) -> Tensor:
        return torch.zeros(self.heads, dtype=torch.float64)


def bits(weights: Tensor) -> Tensor:
    """Entropy along the last axis: 0 for one key, log₂ n for n keys alike."""
    return -torch.xlogy(weights, weights).sum(dim=-1) / torch.log(torch.tensor(2.0)).double()


def _entropies(rows: Tensor) -> Tensor:
    """(H, queries, S) -> (H, queries), head by head: many digits for one head at a time."""
    return torch.stack([bits(row.double()) for row in rows])


def lengths(trace: Trace, attention: str) -> Tensor:
    """How long, summed over positions, the vector is that each head adds: (H,)."""
    mixed = trace[f"{attention}.mixed"][0].double()  # (H, T, E)
    name, (H, _, E) = f"{attention}.output", mixed.shape
    if name in trace.graph.nodes:
        weight = trace.parameters[trace.node(name).inputs[1]].detach().cpu().double()
        mixed = mixed @ weight.reshape(-1, H, E).permute(1, 2, 0)  # (H, T, D)
    return _length(mixed).sum(dim=-1)


def effects(
    model: Model, graph: Graph, reading: TokenizedInput, off: list[AblateHead]
) -> Iterator[float]:
    """How far the answer to one text moves when each of these heads adds nothing."""
    device = model.embedding.weight.device
    ids = [torch.tensor([row], device=device) for row in reading.ids.values()]
    likely = "probabilities" in graph.nodes
    with inference(model):
        before = _answer(model(*ids), likely)
        for edit in off:
            with edit.applied(model, graph):
                after = _answer(model(*ids), likely)
            yield float(_moved(before, after, likely))


def _answer(output: Tensor, likely: bool) -> Tensor:
    return output.float().softmax(dim=-1) if likely else output.float()


def _moved(before: Tensor, after: Tensor, likely: bool) -> Tensor:
    """Total variation, the mean over positions; for a vector the way it went over its length."""
    if likely:
        return (after - before).abs().sum(dim=-1).mean() / 2
    return (_length(after - before) / _length(before).clamp(min=1e-12)).mean()


def _length(vectors: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return found


SHOWS = 1e-4  # of the probability, or of a vector's length: less is next to nothing

ROOM = 2**29  # bytes of weights at a time

TRIED = 8  # texts on which every head is switched off; each costs a pass a head


class Watch:
    """What was counted of every attention, by its name in a trace."""

    def __init__(self, model: Model, marks: frozenset[int]) -> None:
        """marks: ids that are no text."""
        self.model, self.marks, self.graph = model, marks, build_graph(model)
        ends = (".attention.weights", ".cross.weights")
        weights = (name for name in self.graph.nodes if name.endswith(ends))
        self.attentions = [name.removesuffix(".weights") for name in weights]
        self.tallies: dict[str, Tally] = {}
        self.met: dict[str, set[int]] = defaultdict(set)  # ids of each sequence
        self.moved: dict[AblateHead, float] = defaultdict(float)
        self.again: dict[AblateHead, float] = {}  # of the first sequence that comes twice
        self.tried = 0

    def read(self, reading: TokenizedInput) -> None:
        """A text: where the heads look, what they add, and what becomes of it without them."""
        for name, trace in self._traces(reading, ("weights", "seen", "mixed")):
            weights, sight = trace[f"{name}.weights"][0], self._sight(trace, name, reading)
            tally = self.tallies.setdefault(name, Tally(len(weights)))
            tally.added += lengths(trace, name)
            if sight.chosen.any():
                tally.count(weights, sight, in_texts(sight))
                tally.count_distances(weights, sight)
                tally.count_spread(weights, sight)
                tally.count_apart(weights, sight)
        for sequence, ids in reading.ids.items():
            self.met[sequence].update(set(ids) - self.marks)
        if self.tried < TRIED:
            self.tried += 1
            for head, moved in self._moved(reading).items():
                self.moved[head] += moved

    def read_repeats(self, reading: TokenizedInput) -> None:
        """A sequence that comes twice: what the heads make of that."""
        for name, trace in self._traces(reading, ("weights", "seen")):
            weights, sight = trace[f"{name}.weights"][0], self._sight(trace, name, reading)
            self.tallies[name].count(weights, sight, in_repeats(sight))
            self.tallies[name].count_apart(weights, sight)
        if not self.again:
            self.again = self._moved(reading)

    def effect(self, head: AblateHead) -> float:
        """The mean over the texts on which it was tried."""
        return self.moved[head] / self.tried

    def matters(self, head: AblateHead) -> bool:
        """Whether its absence shows, in a text or where tokens come again."""
        return max(self.effect(head), self.again.get(head, 0.0)) >= SHOWS

    def _traces(self, reading: TokenizedInput, parts: Sequence[str]) -> Iterator[tuple[str, Trace]]:
        """Each attention with a trace of it: all from one pass, or from several if large."""
        longest = max(map(len, reading.ids.values()))
        stacks = (getattr(self.model.config, side, None) for side in ("encoder", "decoder"))
        heads = max(stack.attention.heads for stack in stacks if stack is not None)
        at_once = max(1, ROOM // (4 * heads * longest**2))
        for first in range(0, len(self.attentions), at_once):
            group = self.attentions[first : first + at_once]
            names = (f"{name}.{part}" for name in group for part in parts)
            trace = capture_trace(
                self.model,
                reading,
                keep=[n for n in names if n in self.graph.nodes],
                graph=self.graph,
            )
            yield from ((name, trace) for name in group)

    def _sight(self, trace: Trace, name: str, reading: TokenizedInput) -> Sight:
        node, model, seen = trace.node(f"{name}.weights"), self.model, f"{name}.seen"
        queries, keys = (torch.tensor(reading.ids[node.sequences[axis]]) for axis in ("T", "S"))
        everything = torch.ones(len(queries), len(keys), dtype=torch.bool)
        return Sight(
            queries=queries,
            keys=keys,
            marks=torch.tensor([int(id) in self.marks for id in keys]),
            seen=_grid(trace[seen]) if seen in trace else everything,
            cross=name.endswith(".cross"),
            shared=not isinstance(model, Translator) or model.source is None,
        )

    def _moved(self, reading: TokenizedInput) -> dict[AblateHead, float]:
        """How far the answer moves without each of the heads."""
        off = [head_off(name, i) for name, t in self.tallies.items() for i in range(t.heads)]
        return dict(zip(off, effects(self.model, self.graph, reading, off), strict=True))


def head_off(attention: str, head: int) -> AblateHead:
    """The edit that switches off a head of this attention."""
    stack, layer, part = attention.split(".")
    return AblateHead(stack, int(layer), head, part)


def _grid(seen: Tensor) -> Tensor:
    """(T, S), whatever stands before it."""
    return seen.reshape(seen.shape[-2:])


STANDS_OUT = 0.3  # of the weight that chance does not give: then a head is called by it

EVEN = 0.9  # of the possible entropy: then it is broad

OFTEN = 0.5  # of all queries must be able to look so far, for a distance to count


@dataclass(frozen=True)
class Kind:
    """name: what it is called; pattern: the strongest one, whether it stands out or not."""

    name: str
    pattern: str
    score: Score
    offset: int | None


def kind_of(scores: dict[str, Score], offset: int | None, evenness: float) -> Kind:
    """What needs a repeat goes first: such a head may rest elsewhere while nothing comes again."""
    strong = {name: s for name, s in scores.items() if s.excess >= STANDS_OUT}
    best = _best({name: s for name, s in strong.items() if name in (INDUCTION, SAME)} or scores)
    score = scores[best]
    at = offset if best == POSITION else None
    if best in strong:
        return Kind(best, best, score, at)
    if evenness >= EVEN:
        return Kind(BROAD, BROAD, Score(evenness, 1.0, score.queries), None)
    return Kind(MIXED, best, score, at)


def scores_of(tally: Tally, head: int, cross: bool) -> tuple[dict[str, Score], int | None]:
    """Every pattern's score, and at which distance that of "position" is."""
    scores = {name: _score(mass, head) for name, mass in tally.patterns.items() if mass.queries}
    named = () if cross else tuple(BESIDE.values())
    far = {
        step: _score(mass, head)
        for step, mass in tally.distances.items()
        if step not in named and mass.queries >= OFTEN * tally.queries
    }
    if not far:
        return scores, None
    offset = max(far, key=lambda step: (far[step].excess, -abs(step)))
    return scores | {POSITION: far[offset]}, offset


def _best(scores: dict[str, Score]) -> str:
    return max(scores, key=lambda name: scores[name].excess)


def _score(mass: Mass, head: int) -> Score:
    n = mass.queries
    return Score(float(mass.mass[head]) / n, mass.chance / n, n)
