"""Which keys of which queries make a pattern: the grids that a head's weights are held against."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from qkv.interpret.matrix import format_number

# FOLDED explain/heads/report: What is said of one head.
# FOLDED explain/heads/table: Reports of heads for people: one row a head, no wider than 80
#   columns.

PREVIOUS, NEXT, ITSELF = "previous token", "next token", "itself"

FIRST, MARKS = "first token", "marks"

SAME, INDUCTION, POSITION = "same token", "induction", "position"

BROAD, MIXED = "broad", "mixed"

BESIDE = {PREVIOUS: -1, ITSELF: 0, NEXT: 1}  # from query to key; "position" is any other distance


@dataclass(frozen=True, eq=False)
class Sight:
    """What one attention reads: ids of queries (T,) and keys (S,), marks, and who sees whom."""

    queries: Tensor
    keys: Tensor
    marks: Tensor  # of the keys, (S,) bool
    seen: Tensor  # (T, S) bool
    cross: bool
    shared: bool = True  # whether the same id means the same token on both sides

    @property
    def chance(self) -> Tensor:
        """The weights of a head that looks everywhere alike, (T, S)."""
        return self.seen / self.seen.sum(dim=1, keepdim=True).clamp(min=1)

    @property
    def chosen(self) -> Tensor:
        """Queries that have a choice, (T,): where one key is seen, every head looks there."""
        return self.seen.sum(dim=1) > 1

    @property
    def distance(self) -> Tensor:
        """From query to key, (T, S): −1 for the token before."""
        T, S = self.seen.shape
        return torch.arange(S) - torch.arange(T)[:, None]


def in_texts(sight: Sight) -> dict[str, Tensor]:
    """Patterns that any text shows, each a grid (T, S) of the keys that belong to it."""
    T, S = sight.seen.shape
    first = (torch.arange(S) == 0).expand(T, S)
    found = {FIRST: first, MARKS: sight.marks.expand(T, S) & ~first}
    if sight.cross:
        return found
    beside = {name: sight.distance == step for name, step in BESIDE.items()}
    found = {name: grid & ~beside[ITSELF] for name, grid in found.items()}
    return beside | found


def in_repeats(sight: Sight) -> dict[str, Tensor]:
    """Patterns that need a token to come again.

    Induction is to look from a token at the one after an earlier occurrence of it, which foretells
    what comes next if the text repeats itself (Olsson et al. 2022, "In-context Learning and
    Induction Heads").
    """
    same = (sight.queries[:, None] == sight.keys) & ~sight.marks
    if sight.cross:
        return {SAME: same} if sight.shared else {}
    same &= sight.distance != 0
    earlier = same & (sight.distance < 0)
    after = torch.zeros_like(same)
    after[:, 1:] = earlier[:, :-1]
    return {SAME: same, INDUCTION: after & (sight.distance != 0)}


@dataclass(frozen=True)
class Score:
    """The mean weight on the keys of a pattern, and what a head that looks everywhere alike gets.

    queries: how many had such a key to look at.
    """

    weight: float
    chance: float
    queries: int

    @property
    def excess(self) -> float:
        """1 if all weight is on the pattern, 0 as by chance, less than 0 if it is avoided."""
        return (self.weight - self.chance) / (1 - self.chance) if self.chance < 1 else 0.0


@dataclass(frozen=True)
class Twin:
    """A head of the same layer that looks at nearly the same, and how far the two are apart.

    distance: the mean Jensen–Shannon distance of their weights, 0 for the same and 1 for disjoint.
    """

    head: int
    distance: float


@dataclass(frozen=True)
class HeadReport:
    """One head; layers and heads count from 0, as in the names of a trace.

    kind: the pattern that stands out, else "broad" or "mixed". weight and chance: of that pattern,
    or of the strongest; for "broad" the evenness, which is 1 by chance. scores: of every pattern
    that could be measured. offset: the distance of "position", −3 for three tokens back.
    entropy: bits, the mean over queries; evenness: as a share of what is possible.
    adds: length of what it adds to the residual, 1 being the mean of its layer's heads. effect: of
    switching it off, the share of the probability that moves (for a model that gives vectors, how
    far the vector moves as a share of its length). dead: switching it off changes next to nothing,
    neither in the texts nor where tokens come again.
    """

    stack: str
    layer: int
    part: str  # attention, or cross
    head: int
    kind: str
    pattern: str
    weight: float
    chance: float
    offset: int | None
    scores: Mapping[str, Score]
    entropy: float
    evenness: float
    adds: float
    effect: float
    dead: bool
    duplicates: tuple[Twin, ...]

    @property
    def name(self) -> str:
        """Of its attention in a trace, as in decoder.0.attention."""
        return f"{self.stack}.{self.layer}.{self.part}"

    def json(self) -> dict[str, Any]:
        """All of it, for one line of JSON."""
        return asdict(self) | {"scores": {name: asdict(s) for name, s in self.scores.items()}}


TITLES = f"{'head':>4}  {'looks at':<21} {'weight':>6} {'chance':>6} {'bits':>5} {'even':>5}"

TITLES += f" {'adds':>5} {'effect':>6}  remarks"

MEANING = (
    "weight: on what it looks at; chance: the same if it looked everywhere alike",
    "bits: entropy of its weights; even: as a share of the most there can be",
    "adds: length of what it adds, 1 for the mean head of its layer",
    "effect: share of the {answer} that moves when it is switched off",
    "dead: its absence changes nothing; as 3: it looks where head 3 of its layer does",
)

WARNING = "Attention says where a head looks, not why the model answers as it does."


def head_table(reports: Sequence[HeadReport], vectors: bool = False) -> Iterator[str]:
    """Lines grouped by layer, then what the columns mean. vectors: the model answers with these."""
    for name, group in groupby(reports, key=lambda report: report.name):
        yield from (_title(name), TITLES)
        yield from (_row(report).rstrip() for report in group)
        yield ""
    answer = "vector" if vectors else "probability"
    yield from (line.format(answer=answer) for line in MEANING)
    yield WARNING


def looks_at(report: HeadReport) -> str:
    """In a word or three, as in "previous token" or "mixed: itself"."""
    pattern = report.pattern
    if pattern == POSITION and report.offset is not None:
        pattern = _step(report.offset)
    return f"{MIXED}: {pattern}" if report.kind == MIXED else pattern


def _row(report: HeadReport) -> str:
    chance = "" if report.kind == BROAD else format_number(report.chance, 2)
    return (
        f"{report.head:>4}  {looks_at(report):<21} {format_number(report.weight, 2):>6} "
        f"{chance:>6} {format_number(report.entropy, 2):>5} {format_number(report.evenness, 2):>5} "
        f"{format_number(report.adds, 2):>5} {format_number(report.effect, 3):>6}  "
        f"{_remark(report)}"
    )


def _remark(report: HeadReport) -> str:
    """The nearest of the heads that look at the same is named; … if there are more."""
    said = ["dead"] * report.dead
    if report.duplicates:
        said.append(f"as {report.duplicates[0].head}{'…' * (len(report.duplicates) > 1)}")
    return ", ".join(said)


def _step(offset: int) -> str:
    if offset == 0:
        return "same position"
    way = "back" if offset < 0 else "ahead"
    return f"{abs(offset)} {way}"


def _title(name: str) -> str:
    stack, layer, part = name.split(".")
    return f"{stack} layer {layer}, {'cross attention' if part == 'cross' else 'attention'}"
