"""How long a tour takes: which models it trains, and for how many steps.

Steps are counted, not minutes, so that everybody sees the same numbers. `seconds` are about what
each took on two quiet cores of 175 GFLOP/s each; they only say how much is left, and are put right
by the time that is really taken. Where others use the cores too, a tour can take twice as long.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qkv.training.plan import TrainArgs
from qkv.training.recipe import Data

# FOLDED tour/clock: How far the tour is, and how long it will still take: said from what it has
#   taken so far.


@dataclass(frozen=True)
class Part:
    """One model of the tour: what it learns and how it is judged."""

    name: str  # of its folder, too
    title: str
    learns: str
    args: TrainArgs
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


def sentiment(args: TrainArgs, seconds: float) -> Part:
    """An encoder that reads a review and gives it a label."""
    return Part(
        name="sentiment",
        title="Encoder: is a review positive or negative?",
        learns="synthetic reviews, in which “not” and “although” turn the meaning around",
        args=args,
        watched="macro_f1",
        metric="accuracy",
        measured="of the held-out reviews get the right label",
        higher_is_better=True,
        baseline="counting words (TF-IDF and logistic regression)",
        seconds=seconds,
    )


def language(args: TrainArgs, seconds: float) -> Part:
    """A decoder that goes on with a text."""
    return Part(
        name="language",
        title="Decoder: what comes next?",
        learns="the documentation that ships inside this Python",
        args=args,
        watched="loss",
        metric="loss_per_character",
        measured="nats of surprise a character on held-out pages (less is better)",
        higher_is_better=False,
        baseline="the text's letter frequencies",
        seconds=seconds,
    )


def translation(args: TrainArgs, seconds: float) -> Part:
    """An encoder–decoder that puts English into German."""
    return Part(
        name="translation",
        title="Encoder–decoder: English into German",
        learns="synthetic sentences about dates and amounts",
        args=args,
        watched="bleu",
        metric="bleu",
        measured="BLEU on held-out sentences (100 is word for word)",
        higher_is_better=True,
        baseline="copying the source",
        seconds=seconds,
    )


FULL = Pace(
    name="full",
    sentiment=sentiment(TrainArgs("classify", size="tiny", steps=400), seconds=9),
    language=language(
        TrainArgs(
            "language", size="small", vocabulary=3_000, context=256, batch=1024, steps=1_600,
            settings={"evaluate_every": 320},
        ),
        seconds=140,
    ),
    translation=translation(TrainArgs("translate", size="tiny", steps=1_000), seconds=55),
    tokens=120,
    texts=800,
    seconds=16,
)  # fmt: skip

QUICK = Pace(
    name="quick",
    sentiment=sentiment(
        TrainArgs("classify", size="tiny", steps=200, settings={"evaluate_every": 50}), seconds=5
    ),
    language=language(
        TrainArgs(
            "language", data=Data(validation_fraction=0.03), size="tiny", vocabulary=1_500,
            context=128, batch=1024, steps=300, settings={"evaluate_every": 150},
        ),
        seconds=12,
    ),
    translation=translation(
        TrainArgs(
            "translate", data=Data(validation_fraction=0.03), size="tiny", steps=300,
            settings={"evaluate_every": 100},
        ),
        seconds=17,
    ),
    tokens=80,
    texts=400,
    seconds=11,
)  # fmt: skip

ENOUGH = 0.5  # seconds of expected work by which this machine can be told from a quiet one


@dataclass(frozen=True)
class Moment:
    """One sign of life."""

    number: int  # of the stage, from 1
    stages: int
    name: str
    said: str  # what is going on
    left: float  # seconds until the end of the tour
    begins: bool  # whether the stage does


Tell = Callable[[Moment], None]  # may raise KeyboardInterrupt, which stops the tour


class Clock:
    """Knows about what each stage takes on two quiet cores, and how much slower it is here."""

    def __init__(self, seconds: Mapping[str, float], tell: Tell) -> None:
        self.seconds, self.tell, self.names = seconds, tell, list(seconds)
        self.now, self.share, self.before = self.names[0], 0.0, 0.0
        self.started, self.expected = time.perf_counter(), 0.0

    def begin(self, name: str, said: str) -> None:
        """The next stage."""
        self.expected += (self.share - self.before) * self.seconds[self.now]
        self.now, self.share, self.before = name, 0.0, 0.0
        self._tell(said, begins=True)

    def had(self, share: float) -> None:
        """So much of the stage was done in another session."""
        self.share, self.before = share, share

    def at(self, share: float, said: str) -> None:
        """So much of the stage is done."""
        self.share = share
        self._tell(said)

    @property
    def left(self) -> float:
        """Seconds until the end."""
        later = self.names[self.names.index(self.now) + 1 :]
        quiet = self.seconds[self.now] * (1 - self.share) + sum(self.seconds[n] for n in later)
        return quiet * self.slowness

    @property
    def slowness(self) -> float:
        """Seconds here for one on a quiet machine; 1 while it is too early to tell."""
        expected = self.expected + (self.share - self.before) * self.seconds[self.now]
        return (time.perf_counter() - self.started) / expected if expected > ENOUGH else 1.0

    def _tell(self, said: str, begins: bool = False) -> None:
        number = self.names.index(self.now) + 1
        self.tell(Moment(number, len(self.names), self.now, said, self.left, begins))
