"""What one example is, when it is more than a text."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Labelled:
    """A text and the name of its class."""

    text: str
    label: str


@dataclass(frozen=True)
class Pair:
    """A text and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class ScoredPair:
    """Two texts and how alike their meanings are, on the scale of their file."""

    source: str
    target: str
    score: float
