"""What a tour trains and how long each stage takes.

Training lengths are steps, not minutes, so that everybody sees the same numbers. `seconds` is
roughly what a stage takes on two quiet cores; it only drives the time-left estimate, which is
corrected by how long the stages really take on this machine.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from qkv.training import TrainArgs
from qkv.training.tasks import DataConfig


@dataclass(frozen=True)
class ModelSpec:
    """One of the three models: what it is trained on and how it is evaluated."""

    name: str  # also the name of its folder
    title: str
    corpus: str  # in words
    args: TrainArgs
    selection_metric: str  # picks the best weights
    metric: str  # the one that is reported
    metric_words: str  # what that metric is
    higher_is_better: bool
    baseline: str  # what the baseline is, in words
    seconds: float


@dataclass(frozen=True)
class TourPlan:
    """The three models, and how much is done with them after training."""

    name: str
    sentiment: ModelSpec
    language: ModelSpec
    translation: ModelSpec
    max_tokens: int  # of the sample
    max_texts: int  # to cluster
    seconds: float  # for everything but training

    @property
    def models(self) -> tuple[ModelSpec, ModelSpec, ModelSpec]:
        return self.sentiment, self.language, self.translation

    def stage_seconds(self) -> dict[str, float]:
        """Every stage in order, with about what it takes on two quiet cores."""
        seconds = {spec.name: spec.seconds for spec in self.models}
        seconds["groups"] = 0.2 * self.seconds
        seconds["checks"] = 0.4 * self.seconds
        seconds["page"] = 0.4 * self.seconds
        return seconds


def sentiment(args: TrainArgs, seconds: float) -> ModelSpec:
    """An encoder that classifies reviews."""
    return ModelSpec(
        name="sentiment",
        title="Encoder: is a review positive or negative?",
        corpus="synthetic reviews, in which “not” and “although” turn the meaning around",
        args=args,
        selection_metric="macro_f1",
        metric="accuracy",
        metric_words="of the validation reviews get the right label",
        higher_is_better=True,
        baseline="counting words (TF-IDF and logistic regression)",
        seconds=seconds,
    )


def language(args: TrainArgs, seconds: float) -> ModelSpec:
    """A decoder that continues a text."""
    return ModelSpec(
        name="language",
        title="Decoder: what comes next?",
        corpus="the documentation that ships inside this Python",
        args=args,
        selection_metric="loss",
        metric="loss_per_character",
        metric_words="nats per character on validation pages (lower is better)",
        higher_is_better=False,
        baseline="the text's letter frequencies",
        seconds=seconds,
    )


def translation(args: TrainArgs, seconds: float) -> ModelSpec:
    """An encoder–decoder that translates English into German."""
    return ModelSpec(
        name="translation",
        title="Encoder–decoder: English into German",
        corpus="synthetic sentences about dates and amounts",
        args=args,
        selection_metric="bleu",
        metric="bleu",
        metric_words="BLEU on validation sentences (100 is word for word)",
        higher_is_better=True,
        baseline="copying the source",
        seconds=seconds,
    )


# The first look: models small enough to train in a minute and a half, good enough to be worth
# opening.
STANDARD = TourPlan(
    name="standard",
    sentiment=sentiment(
        TrainArgs("classify", size="tiny", steps=240, settings={"evaluate_every": 60}), seconds=6
    ),
    language=language(
        TrainArgs(
            "language",
            data=DataConfig(validation_fraction=0.03),
            size="tiny",
            vocab_size=2_000,
            context_length=128,
            batch=1024,
            steps=750,
            settings={"evaluate_every": 250},
        ),
        seconds=32,
    ),
    translation=translation(
        TrainArgs(
            "translate",
            data=DataConfig(validation_fraction=0.03),
            size="tiny",
            steps=450,
            settings={"evaluate_every": 225},
        ),
        seconds=27,
    ),
    max_tokens=100,
    max_texts=500,
    seconds=12,
)

# A larger language model and longer training: the models the documentation shows.
FULL = TourPlan(
    name="full",
    sentiment=sentiment(TrainArgs("classify", size="tiny", steps=400), seconds=9),
    language=language(
        TrainArgs(
            "language",
            size="small",
            vocab_size=3_000,
            context_length=256,
            batch=1024,
            steps=1_600,
            settings={"evaluate_every": 320},
        ),
        seconds=140,
    ),
    translation=translation(TrainArgs("translate", size="tiny", steps=1_000), seconds=55),
    max_tokens=120,
    max_texts=800,
    seconds=16,
)

# Under a minute; the models know less.
QUICK = TourPlan(
    name="quick",
    sentiment=sentiment(
        TrainArgs("classify", size="tiny", steps=200, settings={"evaluate_every": 50}), seconds=5
    ),
    language=language(
        TrainArgs(
            "language",
            data=DataConfig(validation_fraction=0.03),
            size="tiny",
            vocab_size=1_500,
            context_length=128,
            batch=1024,
            steps=300,
            settings={"evaluate_every": 150},
        ),
        seconds=12,
    ),
    translation=translation(
        TrainArgs(
            "translate",
            data=DataConfig(validation_fraction=0.03),
            size="tiny",
            steps=300,
            settings={"evaluate_every": 100},
        ),
        seconds=17,
    ),
    max_tokens=80,
    max_texts=400,
    seconds=11,
)

PLANS = {plan.name: plan for plan in (STANDARD, FULL, QUICK)}

MIN_EXPECTED_SECONDS = 0.5  # of expected work before the speed of this machine can be estimated


@dataclass(frozen=True)
class ProgressUpdate:
    """Where the tour is."""

    number: int  # of the stage, from 1
    stages: int
    stage: str
    message: str
    seconds_left: float  # until the end of the tour
    is_start: bool  # whether the stage begins here


OnProgress = Callable[[ProgressUpdate], None]  # may raise KeyboardInterrupt, which stops the tour


class StageClock:
    """Estimates the time left from what each stage takes on two quiet cores.

    The estimate is scaled by how much slower the work has been here so far.
    """

    def __init__(self, stage_seconds: Mapping[str, float], on_progress: OnProgress) -> None:
        self.stage_seconds = stage_seconds
        self.on_progress = on_progress
        self.stages = list(stage_seconds)
        self.stage = self.stages[0]
        self.fraction = 0.0  # of the stage that is done
        self.fraction_before = 0.0  # of the stage that an earlier session did
        self.expected_seconds = 0.0  # for all stages before this one
        self.start_time = time.perf_counter()

    def start(self, stage: str, message: str) -> None:
        """Begin the next stage."""
        self.expected_seconds += self._expected_in_stage()
        self.stage = stage
        self.fraction = 0.0
        self.fraction_before = 0.0
        self._report(message, is_start=True)

    def skip_to(self, fraction: float) -> None:
        """Note that an earlier session did this fraction of the stage."""
        self.fraction = fraction
        self.fraction_before = fraction

    def advance(self, fraction: float, message: str) -> None:
        """Note that this fraction of the stage is done."""
        self.fraction = fraction
        self._report(message)

    @property
    def seconds_left(self) -> float:
        later = self.stages[self.stages.index(self.stage) + 1 :]
        quiet_seconds = self.stage_seconds[self.stage] * (1 - self.fraction)
        quiet_seconds += sum(self.stage_seconds[stage] for stage in later)
        return quiet_seconds * self.slowdown

    @property
    def slowdown(self) -> float:
        """Seconds here per second on a quiet machine; 1 while it is too early to tell."""
        expected = self.expected_seconds + self._expected_in_stage()
        if expected <= MIN_EXPECTED_SECONDS:
            return 1.0
        return (time.perf_counter() - self.start_time) / expected

    def _expected_in_stage(self) -> float:
        return (self.fraction - self.fraction_before) * self.stage_seconds[self.stage]

    def _report(self, message: str, is_start: bool = False) -> None:
        number = self.stages.index(self.stage) + 1
        update = ProgressUpdate(
            number, len(self.stages), self.stage, message, self.seconds_left, is_start
        )
        self.on_progress(update)
