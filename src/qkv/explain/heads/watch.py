"""The heads of a model watched while it reads, one text at a time."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from qkv.explain.heads.places import Sight, in_repeats, in_texts
from qkv.explain.heads.tally import Tally
from qkv.explain.heads.worth import effects, lengths
from qkv.explain.trace import HeadOff, Reading, Trace, graph, open_up
from qkv.model import Model, Translator

SHOWS = 1e-4  # of the probability, or of a vector's length: less is next to nothing
ROOM = 2**29  # bytes of weights at a time
TRIED = 8  # texts on which every head is switched off; each costs a pass a head


class Watch:
    """What was counted of every attention, by its name in a trace."""

    def __init__(self, model: Model, marks: frozenset[int]) -> None:
        """marks: ids that are no text."""
        self.model, self.marks, self.graph = model, marks, graph(model)
        ends = (".attention.weights", ".cross.weights")
        weights = (name for name in self.graph.nodes if name.endswith(ends))
        self.attentions = [name.removesuffix(".weights") for name in weights]
        self.tallies: dict[str, Tally] = {}
        self.met: dict[str, set[int]] = defaultdict(set)  # ids of each sequence
        self.moved: dict[HeadOff, float] = defaultdict(float)
        self.again: dict[HeadOff, float] = {}  # of the first sequence that comes twice
        self.tried = 0

    def read(self, reading: Reading) -> None:
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

    def read_repeats(self, reading: Reading) -> None:
        """A sequence that comes twice: what the heads make of that."""
        for name, trace in self._traces(reading, ("weights", "seen")):
            weights, sight = trace[f"{name}.weights"][0], self._sight(trace, name, reading)
            self.tallies[name].count(weights, sight, in_repeats(sight))
            self.tallies[name].count_apart(weights, sight)
        if not self.again:
            self.again = self._moved(reading)

    def effect(self, head: HeadOff) -> float:
        """The mean over the texts on which it was tried."""
        return self.moved[head] / self.tried

    def matters(self, head: HeadOff) -> bool:
        """Whether its absence shows, in a text or where tokens come again."""
        return max(self.effect(head), self.again.get(head, 0.0)) >= SHOWS

    def _traces(self, reading: Reading, parts: Sequence[str]) -> Iterator[tuple[str, Trace]]:
        """Each attention with a trace of it: all from one pass, or from several if large."""
        longest = max(map(len, reading.ids.values()))
        stacks = (getattr(self.model.config, side, None) for side in ("encoder", "decoder"))
        heads = max(stack.attention.heads for stack in stacks if stack is not None)
        at_once = max(1, ROOM // (4 * heads * longest**2))
        for first in range(0, len(self.attentions), at_once):
            group = self.attentions[first : first + at_once]
            names = (f"{name}.{part}" for name in group for part in parts)
            trace = open_up(self.model, reading, keep=[n for n in names if n in self.graph.nodes])
            yield from ((name, trace) for name in group)

    def _sight(self, trace: Trace, name: str, reading: Reading) -> Sight:
        node, model, seen = trace.node(f"{name}.weights"), self.model, f"{name}.seen"
        queries, keys = (torch.tensor(reading.ids[node.along[axis]]) for axis in ("T", "S"))
        everything = torch.ones(len(queries), len(keys), dtype=torch.bool)
        return Sight(
            queries=queries,
            keys=keys,
            marks=torch.tensor([int(id) in self.marks for id in keys]),
            seen=_grid(trace[seen]) if seen in trace else everything,
            cross=name.endswith(".cross"),
            shared=not isinstance(model, Translator) or model.source is None,
        )

    def _moved(self, reading: Reading) -> dict[HeadOff, float]:
        """How far the answer moves without each of the heads."""
        off = [head_off(name, i) for name, t in self.tallies.items() for i in range(t.heads)]
        return dict(zip(off, effects(self.model, self.graph, reading, off), strict=True))


def head_off(attention: str, head: int) -> HeadOff:
    """The edit that switches off a head of this attention."""
    stack, layer, part = attention.split(".")
    return HeadOff(stack, int(layer), head, part)


def _grid(seen: Tensor) -> Tensor:
    """(T, S), whatever stands before it."""
    return seen.reshape(seen.shape[-2:])
