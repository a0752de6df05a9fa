"""Attention patterns: which keys belong to each, the scores of a head, and the printed report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from qkv.interpret.matrix import format_number

PREVIOUS = "previous token"
NEXT = "next token"
ITSELF = "itself"
FIRST = "first token"
SPECIAL = "special tokens"
SAME = "same token"
INDUCTION = "induction"
POSITION = "position"
BROAD = "broad"
MIXED = "mixed"

ADJACENT = {PREVIOUS: -1, ITSELF: 0, NEXT: 1}  # key minus query; "position" is any other distance


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """The input of one attention: ids of queries (T,) and keys (S,), and which key is visible.

    special (S,): which keys are special tokens. visible (T, S): True where a query may attend.
    shared_vocabulary: whether equal ids mean equal tokens on both sides.
    """

    queries: Tensor
    keys: Tensor
    special: Tensor
    visible: Tensor
    cross: bool
    shared_vocabulary: bool = True

    @property
    def uniform(self) -> Tensor:
        """The weights of a head that attends to all visible keys equally, (T, S)."""
        return self.visible / self.visible.sum(dim=1, keepdim=True).clamp(min=1)

    @property
    def has_choice(self) -> Tensor:
        """Queries that see more than one key, (T,); with one key all heads attend to it."""
        return self.visible.sum(dim=1) > 1

    @property
    def distance(self) -> Tensor:
        """From query to key, (T, S): −1 for the previous token."""
        T, S = self.visible.shape
        return torch.arange(S) - torch.arange(T)[:, None]


def text_patterns(context: AttentionContext) -> dict[str, Tensor]:
    """Patterns that any text shows, each a grid (T, S) of the keys that belong to it."""
    T, S = context.visible.shape
    first = (torch.arange(S) == 0).expand(T, S)
    patterns = {FIRST: first, SPECIAL: context.special.expand(T, S) & ~first}
    if context.cross:
        return patterns
    adjacent = {name: context.distance == distance for name, distance in ADJACENT.items()}
    others = {name: grid & ~adjacent[ITSELF] for name, grid in patterns.items()}
    return adjacent | others


def repeat_patterns(context: AttentionContext) -> dict[str, Tensor]:
    """Patterns that need a token to occur twice.

    An induction head attends from a token to the one after an earlier occurrence of it, which
    predicts the next token if the text repeats itself (Olsson et al. 2022, "In-context Learning
    and Induction Heads").
    """
    same = (context.queries[:, None] == context.keys) & ~context.special
    if context.cross:
        return {SAME: same} if context.shared_vocabulary else {}
    same &= context.distance != 0
    earlier = same & (context.distance < 0)
    after = torch.zeros_like(same)  # one key to the right of an earlier occurrence
    after[:, 1:] = earlier[:, :-1]
    return {SAME: same, INDUCTION: after & (context.distance != 0)}


@dataclass(frozen=True)
class PatternScore:
    """The mean attention weight on the keys of a pattern, and that of a uniform head (chance).

    queries: how many had such a key.
    """

    weight: float
    chance: float
    queries: int

    @property
    def excess(self) -> float:
        """1 if all weight is on the pattern, 0 at chance level, negative if it is avoided."""
        if self.chance >= 1:
            return 0.0
        return (self.weight - self.chance) / (1 - self.chance)


@dataclass(frozen=True)
class SimilarHead:
    """A head of the same layer that attends to nearly the same keys.

    distance: the mean Jensen–Shannon distance of their weights, 0 if equal and 1 if disjoint.
    """

    head: int
    distance: float


@dataclass(frozen=True)
class HeadReport:
    """The statistics of one head; layers and heads are numbered from 0, as in a trace.

    kind: the pattern that stands out, else "broad" or "mixed". weight and chance: of that pattern,
    or of the strongest; for "broad" the evenness, which is 1 by chance. scores: of every pattern
    that could be measured. offset: the distance of "position", −3 for three tokens back.
    entropy: bits, the mean over queries; evenness: as a fraction of the maximum. adds: length of
    what it adds to the residual stream, relative to the mean head of its layer. effect: of
    ablating it, the fraction of the probability that moves (for a vector, the distance it moves
    relative to its length). dead: ablating it changes next to nothing, neither in texts nor in
    repeated sequences.
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
    scores: Mapping[str, PatternScore]
    entropy: float
    evenness: float
    adds: float
    effect: float
    dead: bool
    duplicates: tuple[SimilarHead, ...]

    @property
    def name(self) -> str:
        """The name of its attention in a trace, for example decoder.0.attention."""
        return f"{self.stack}.{self.layer}.{self.part}"

    def json(self) -> dict[str, Any]:
        return asdict(self) | {"scores": {name: asdict(s) for name, s in self.scores.items()}}


HEADER = (
    f"{'head':>4}  {'attends to':<21} {'weight':>6} {'chance':>6} {'bits':>5} {'even':>5}"
    f" {'adds':>5} {'effect':>6}  remarks"
)
LEGEND = (
    "weight: on what it attends to; chance: the same for uniform attention",
    "bits: entropy of its weights; even: as a fraction of the maximum",
    "adds: length of what it adds, 1 for the mean head of its layer",
    "effect: fraction of the {output} that moves when it is ablated",
    "dead: ablating it changes nothing; as 3: attends as head 3 of its layer does",
)
WARNING = "Attention shows where a head looks, not why the model answers as it does."


def head_table(reports: Sequence[HeadReport], vectors: bool = False) -> Iterator[str]:
    """Lines of at most 80 columns, grouped by layer, then the legend.

    vectors: the model's output is an embedding.
    """
    for name, group in groupby(reports, key=lambda report: report.name):
        yield _title(name)
        yield HEADER
        for report in group:
            yield _row(report).rstrip()
        yield ""
    for line in LEGEND:
        yield line.format(output="vector" if vectors else "probability")
    yield WARNING


def pattern_name(report: HeadReport) -> str:
    """A short description, for example "previous token" or "mixed: itself"."""
    pattern = report.pattern
    if pattern == POSITION and report.offset is not None:
        pattern = _distance_name(report.offset)
    if report.kind == MIXED:
        return f"{MIXED}: {pattern}"
    return pattern


def _row(report: HeadReport) -> str:
    chance = ""
    if report.kind != BROAD:
        chance = format_number(report.chance, 2)
    return (
        f"{report.head:>4}  {pattern_name(report):<21} {format_number(report.weight, 2):>6} "
        f"{chance:>6} {format_number(report.entropy, 2):>5} {format_number(report.evenness, 2):>5} "
        f"{format_number(report.adds, 2):>5} {format_number(report.effect, 3):>6}  "
        f"{_remarks(report)}"
    )


def _remarks(report: HeadReport) -> str:
    """Whether it is dead, and the closest head that attends alike; … if there are more."""
    remarks = []
    if report.dead:
        remarks.append("dead")
    if report.duplicates:
        more = "…" if len(report.duplicates) > 1 else ""
        remarks.append(f"as {report.duplicates[0].head}{more}")
    return ", ".join(remarks)


def _distance_name(offset: int) -> str:
    if offset == 0:
        return "same position"
    direction = "back" if offset < 0 else "ahead"
    return f"{abs(offset)} {direction}"


def _title(name: str) -> str:
    stack, layer, part = name.split(".")
    attention = "cross attention" if part == "cross" else "attention"
    return f"{stack} layer {layer}, {attention}"
