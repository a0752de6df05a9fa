"""A whole training run as one frozen value: the same recipe and data give the same weights."""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NoReturn

import tomli_w
from pydantic import Field, PositiveFloat, ValidationError

from qkv.errors import TrainingError, UsageError, unknown
from qkv.legacy import upgrade
from qkv.model import DecoderOnly, EncoderDecoder, EncoderOnly
from qkv.model.config import Config, Count, Fraction, Size, validation_message
from qkv.model.stack import Stack
from qkv.tasks.text_tasks import ClassifyTask, EmbedTask
from qkv.tasks.token_tasks import LanguageTask, MaskedTask, TranslateTask
from qkv.training.optimizer import Linear, MuonAdamW, OptimizerConfig, ScheduleConfig

# FOLDED train/settings: Settings laid over a recipe: from a TOML file, and from the command
#   line as a.b=c.

Names = Annotated[tuple[str, ...], Field(strict=False)]  # TOML has lists

TaskChoice = Annotated[
    LanguageTask | MaskedTask | ClassifyTask | TranslateTask | EmbedTask,
    Field(discriminator="kind"),
]

ModelChoice = Annotated[EncoderOnly | DecoderOnly | EncoderDecoder, Field(discriminator="kind")]

EVALUATIONS = 10  # in a run


class Data(Config):
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
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    bidirectional: bool = False  # each pair also the other way round; for translate
    sha256: str = ""  # not yet read


class Tokens(Config):
    """How text becomes tokens: one of qkv.text.KINDS, with at most so many of them."""

    kind: str | None = None  # none: that of the origin
    vocab_size: Size | None = None  # none: that of the origin
    bpe_dropout: Fraction = 0.0  # of merges left out while a word is cut for training


class Origin(Config):
    """The bundle that is trained further, and the hash of its manifest."""

    path: str
    sha256: str


class Recipe(Config):
    """Everything that decides the result of `qkv train`."""

    data: Data
    tokens: Tokens | None = None  # none: those of the origin
    origin: Origin | None = None
    task: TaskChoice
    model: ModelChoice
    optimizer: OptimizerConfig = MuonAdamW()
    schedule: ScheduleConfig = Linear()
    steps: Size
    batch: Size  # tokens a step, padding included
    accumulate: Size = 1  # parts each step is computed in
    grad_clip: PositiveFloat = 1.0
    ema: Fraction = 0.0  # of the weights before, in the running mean that is kept; 0: no mean
    patience: Count = 0  # evaluations without a better one before training ends; 0: to the end
    activation_checkpointing: bool = False  # layers again in the backward pass, to save memory
    compile: bool = False
    seed: Count = 0
    evaluate_every: Size

    @property
    def bpe_dropout(self) -> float:
        """The share of merges that is left out in training."""
        return 0.0 if self.tokens is None else self.tokens.bpe_dropout

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
        raise TrainingError(validation_message(error)) from None


def read_toml(text: str) -> dict[str, Any]:
    try:
        return upgrade_settings(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise TrainingError(f"the recipe is not valid TOML: {error}") from None


Settings = dict[str, Any]

STACKS = ("encoder", "decoder")

GROUPS = ("data", "tokens", "origin", "task", "model", "optimizer", "schedule")


def read_settings(assignments: Iterable[str]) -> Settings:
    """`["optimizer.lr=0.01", "model.width=256"]` as nested settings."""
    settings: Settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise UsageError(f'"{assignment}" sets nothing; write it as in optimizer.lr=0.01')
        inner = settings
        *path, last = name.strip().split(".")
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f'"{assignment}" does not fit "{part}={inner}"; leave one out')
        inner[last] = _value(value.strip())
    return upgrade_settings(settings)


def upgrade_settings(settings: Mapping[str, Any]) -> Settings:
    """The same settings, or recipe, under the names of this version."""
    fields = upgrade("recipe.toml", settings)
    if isinstance(fields.get("model"), Mapping):
        fields["model"] = upgrade("config.json", fields["model"])
    return fields


def laid_over(base: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """The base with what is set in its place; another kind replaces the old one whole."""
    merged = dict(base)
    for name, value in settings.items():
        old = merged.get(name)
        if old is not None and isinstance(old, Mapping) != isinstance(value, Mapping):
            _refuse(name, value)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            merged[name] = value
        elif value.get("kind", old.get("kind")) != old.get("kind"):
            merged[name] = dict(value)
        else:
            merged[name] = laid_over(old, value)
    return merged


def in_every_stack(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """What is said of the whole model, such as width and layers, said of each of its stacks.

    What is said last counts: `model.width=256` after a whole recipe is for all of its stacks.
    """
    spread: Settings = {}
    for name, value in settings.items():
        if name in Stack.model_fields and name not in model:
            for stack in STACKS:
                if stack in model:
                    spread[stack] = laid_over(spread.get(stack, {}), {name: value})
        else:
            spread[name] = (
                laid_over(spread.get(name, {}), value) if isinstance(value, dict) else value
            )
    return spread


def check_names(settings: Mapping[str, Any]) -> None:
    """A misspelt section is said before any work is done."""
    for name, value in settings.items():
        if name not in Recipe.model_fields:
            raise UsageError(unknown("setting", name, Recipe.model_fields))
        if (name in GROUPS) != isinstance(value, Mapping):
            _refuse(name, value)


def _refuse(name: str, value: Any) -> NoReturn:
    """One value where there are several settings, or the other way round."""
    if isinstance(value, Mapping):
        raise UsageError(f"{name} is a single setting; there is no {name}.{next(iter(value), '')}")
    raise UsageError(f"{name} is a group of settings; say which, as in {name}.NAME={value}")


def _value(text: str) -> Any:
    """A number, true, false, a list or quoted text as in TOML; anything else is plain text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
