"""What is said of a label: each word's part in it, and how far to trust that."""

from dataclasses import dataclass

from qkv.explain.why.faithfulness import Faithfulness
from qkv.explain.why.gradients import Completeness
from qkv.explain.why.words import Piece

WAYS = ("occlusion", "gradients", "attention")  # to rank words


@dataclass(frozen=True)
class LabelWord:
    """What one word, or mark, has to do with the label."""

    word: Piece
    occlusion: float | None  # how far the log-odds of the label fall without it; marks stay
    drop: float | None  # the same in probability
    gradients: float  # what it adds to the log-odds, by integrated gradients
    attention: float  # the share of all looks it got: where the model looked, not why

    def json(self) -> dict[str, object]:
        numbers = ("occlusion", "drop", "gradients", "attention")
        return {**self.word.json(), **{name: getattr(self, name) for name in numbers}}


@dataclass(frozen=True)
class LabelReason:
    """Why this label: the words in their order, marks apart.

    `faithfulness` has a test for each way to rank the words; none for a text without words.
    """

    text: str
    label: str
    probabilities: dict[str, float]  # the likeliest first
    words: tuple[LabelWord, ...]
    marks: tuple[LabelWord, ...]
    hidden: str
    baseline: str
    completeness: Completeness
    faithfulness: dict[str, Faithfulness]
    remarks: tuple[str, ...]

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def json(self) -> dict[str, object]:
        return {
            "text": self.text,
            "label": self.label,
            "probability": self.probability,
            "probabilities": self.probabilities,
            "words": [word.json() for word in self.words],
            "marks": [mark.json() for mark in self.marks],
            "hidden": self.hidden,
            "baseline": self.baseline,
            "completeness": self.completeness.json(),
            "faithfulness": {way: test.json() for way, test in self.faithfulness.items()},
            "remarks": list(self.remarks),
        }
