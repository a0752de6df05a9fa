"""A whole training run as one frozen value: the same recipe and data give the same weights."""

import tomllib
from typing import Annotated, Any

import tomli_w
from pydantic import Field, PositiveFloat, ValidationError

from qkv.errors import TrainingError
from qkv.model import DecoderOnly, EncoderDecoder, EncoderOnly
from qkv.model.choice import Choice, Count, Share, Size, one_line
from qkv.task.classify import ClassifyTask
from qkv.task.embed import EmbedTask
from qkv.task.language import LanguageTask
from qkv.task.masked import MaskedTask
from qkv.task.translate import TranslateTask
from qkv.train.optimiser import MuonAdamW, OptimiserChoice
from qkv.train.schedule import Linear, ScheduleChoice

Names = Annotated[tuple[str, ...], Field(strict=False)]  # TOML has lists
TaskChoice = Annotated[
    LanguageTask | MaskedTask | ClassifyTask | TranslateTask | EmbedTask,
    Field(discriminator="kind"),
]
ModelChoice = Annotated[EncoderOnly | DecoderOnly | EncoderDecoder, Field(discriminator="kind")]


EVALUATIONS = 10  # in a run


class Data(Choice):
    """Which examples: a built-in corpus or files, and what they held when the recipe was made.

    A column is a name or a number from 1. Without files, source and target are two parallel files.
    """

    files: Names = ()  # none: the built-in corpus
    text: str | None = None
    label: str | None = None
    source: str | None = None
    target: str | None = None
    score: str | None = None
    validation: Names = ()  # none: a part of the files is held out
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    both_ways: bool = False  # each pair also the other way round; for translate
    sha256: str = ""  # not yet read


class Tokens(Choice):
    """How text becomes tokens: one of qkv.text.KINDS, with at most so many of them."""

    kind: str | None = None  # none: that of the origin
    ceiling: Size | None = None  # none: that of the origin
    noise: Share = 0.0  # of merges left out while a word is cut for training


class Origin(Choice):
    """The bundle that is trained further, and the hash of its manifest."""

    path: str
    sha256: str


class Recipe(Choice):
    """Everything that decides the result of `qkv train`."""

    data: Data
    tokens: Tokens | None = None  # none: those of the origin
    origin: Origin | None = None
    task: TaskChoice
    model: ModelChoice
    optimiser: OptimiserChoice = MuonAdamW()
    schedule: ScheduleChoice = Linear()
    steps: Size
    batch: Size  # tokens a step, padding included
    accumulate: Size = 1  # parts each step is computed in
    clip: PositiveFloat = 1.0
    average: Share = 0.0  # of the weights before, in the running mean that is kept; 0: no mean
    patience: Count = 0  # evaluations without a better one before training ends; 0: to the end
    recompute: bool = False  # layers again in the backward pass, to save memory
    compile: bool = False
    seed: Count = 0
    evaluate_every: Size

    @property
    def noise(self) -> float:
        """The share of merges that is left out in training."""
        return 0.0 if self.tokens is None else self.tokens.noise

    def toml(self) -> str:
        """The recipe as a file that `read_recipe` reads back; what is not set is left out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def evaluations(steps: int) -> int:
    """After how many steps to look at the held-out part."""
    return max(1, steps // EVALUATIONS)


def read_recipe(text: str) -> Recipe:
    """The recipe that this TOML describes."""
    return make_recipe(read_toml(text))


def make_recipe(fields: dict[str, Any]) -> Recipe:
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        raise TrainingError(one_line(error)) from None


def read_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TrainingError(f"the recipe is not valid TOML: {error}") from None
