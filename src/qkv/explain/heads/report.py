"""What is said of one head."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


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
