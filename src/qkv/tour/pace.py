"""How long a tour takes: which models it trains, and for how many steps.

Steps are counted, not minutes, so that everybody sees the same numbers. `seconds` are about what
each took on two quiet cores of 175 GFLOP/s each; they only say how much is left, and are put right
by the time that is really taken. Where others use the cores too, a tour can take twice as long.
"""

from dataclasses import dataclass

from qkv.train.plan import Wish
from qkv.train.recipe import Data


@dataclass(frozen=True)
class Part:
    """One model of the tour: what it learns and how it is judged."""

    name: str  # of its folder, too
    title: str
    learns: str
    wish: Wish
    watched: str  # the metric that picks the best weights
    metric: str  # the one that is told
    measured: str  # what that metric is, in words
    higher_is_better: bool
    baseline: str  # what the other number is, in words
    seconds: float


@dataclass(frozen=True)
class Pace:
    """The three models, and how much is looked at after training."""

    name: str
    sentiment: Part
    language: Part
    translation: Part
    tokens: int  # that are written
    texts: int  # that are grouped, at most
    seconds: float  # of all that is not training

    @property
    def parts(self) -> tuple[Part, Part, Part]:
        return self.sentiment, self.language, self.translation


def sentiment(wish: Wish, seconds: float) -> Part:
    """An encoder that reads a review and gives it a label."""
    return Part(
        name="sentiment",
        title="Encoder: is a review positive or negative?",
        learns="synthetic reviews, in which “not” and “although” turn the meaning around",
        wish=wish,
        watched="macro_f1",
        metric="accuracy",
        measured="of the held-out reviews get the right label",
        higher_is_better=True,
        baseline="counting words (TF-IDF and logistic regression)",
        seconds=seconds,
    )


def language(wish: Wish, seconds: float) -> Part:
    """A decoder that goes on with a text."""
    return Part(
        name="language",
        title="Decoder: what comes next?",
        learns="the documentation that ships inside this Python",
        wish=wish,
        watched="loss",
        metric="loss_per_character",
        measured="nats of surprise a character on held-out pages (less is better)",
        higher_is_better=False,
        baseline="the text's letter frequencies",
        seconds=seconds,
    )


def translation(wish: Wish, seconds: float) -> Part:
    """An encoder–decoder that puts English into German."""
    return Part(
        name="translation",
        title="Encoder–decoder: English into German",
        learns="synthetic sentences about dates and amounts",
        wish=wish,
        watched="bleu",
        metric="bleu",
        measured="BLEU on held-out sentences (100 is word for word)",
        higher_is_better=True,
        baseline="copying the source",
        seconds=seconds,
    )


FULL = Pace(
    name="full",
    sentiment=sentiment(Wish("classify", size="tiny", steps=400), seconds=9),
    language=language(
        Wish(
            "language", size="small", vocabulary=3_000, context=256, batch=1024, steps=1_600,
            settings={"evaluate_every": 320},
        ),
        seconds=140,
    ),
    translation=translation(Wish("translate", size="tiny", steps=1_000), seconds=55),
    tokens=120,
    texts=800,
    seconds=16,
)  # fmt: skip
QUICK = Pace(
    name="quick",
    sentiment=sentiment(
        Wish("classify", size="tiny", steps=200, settings={"evaluate_every": 50}), seconds=5
    ),
    language=language(
        Wish(
            "language", data=Data(held_out=0.03), size="tiny", vocabulary=1_500, context=128,
            batch=1024, steps=300, settings={"evaluate_every": 150},
        ),
        seconds=12,
    ),
    translation=translation(
        Wish(
            "translate", data=Data(held_out=0.03), size="tiny", steps=300,
            settings={"evaluate_every": 100},
        ),
        seconds=17,
    ),
    tokens=80,
    texts=400,
    seconds=11,
)  # fmt: skip
