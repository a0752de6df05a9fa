"""What is said of a translation: which source word each of its words goes back to, if any."""

from dataclasses import dataclass

from qkv.explain.why.faithfulness import Faithfulness
from qkv.explain.why.words import Piece


@dataclass(frozen=True)
class TargetWord:
    """A word of the translation, and the source words it goes back to, by their numbers.

    probability: of all its tokens together, given what was written before. whole: how far its
    log-probability falls when the whole source is hidden.
    """

    word: Piece
    probability: float
    looked_at: int  # the source word that most attention went to
    attention: tuple[float, ...]  # its share of attention to each source word
    moved_by: int | None  # the source word without which it is least likely; None if invented
    ablation: tuple[float, ...]  # how far its log-probability falls without each source word
    whole: float

    @property
    def invented(self) -> bool:
        """Whether hiding any one source word moves it by next to nothing."""
        return self.moved_by is None

    @property
    def agrees(self) -> bool:
        """Whether what it looked at is what it depends on most."""
        return self.looked_at == self.moved_by

    def json(self) -> dict[str, object]:
        return {
            **self.word.json(),
            "probability": self.probability,
            "looked_at": self.looked_at,
            "moved_by": self.moved_by,
            "agrees": self.agrees,
            "invented": self.invented,
            "moved": max(self.ablation),
            "whole": self.whole,
            "attention": list(self.attention),
            "ablation": list(self.ablation),
        }


@dataclass(frozen=True)
class SourceWord:
    """A word of the source; moved: the most that hiding it changes a target word's log p."""

    word: Piece
    moved: float
    attention: float  # the most that any target word paid it
    dropped: bool  # it moves next to nothing, and no target word goes back to it

    def json(self) -> dict[str, object]:
        numbers = {"moved": self.moved, "attention": self.attention, "dropped": self.dropped}
        return {**self.word.json(), **numbers}


@dataclass(frozen=True)
class TranslationReason:
    """The words of both texts in their order, and how far each alignment is to be trusted.

    agreement: of the target words that are not invented, the share that attention and ablation
    lead back to the same word.
    """

    source: str
    target: str
    layer: int  # whose attention it is
    sources: tuple[SourceWord, ...]
    targets: tuple[TargetWord, ...]
    agreement: float | None
    still: float  # below this much of log p a word counts as not moved
    hidden: str
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    @property
    def dropped(self) -> tuple[SourceWord, ...]:
        return tuple(word for word in self.sources if word.dropped)

    @property
    def invented(self) -> tuple[TargetWord, ...]:
        return tuple(word for word in self.targets if word.invented)

    def json(self) -> dict[str, object]:
        return {
            "source": self.source,
            "target": self.target,
            "layer": self.layer,
            "source_words": [word.json() for word in self.sources],
            "target_words": [word.json() for word in self.targets],
            "agreement": self.agreement,
            "dropped": [word.word.text for word in self.dropped],
            "invented": [word.word.text for word in self.invented],
            "still": self.still,
            "hidden": self.hidden,
            "faithfulness": {way: test.json() for way, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }
