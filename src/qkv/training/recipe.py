"""A training run as one frozen value: the same recipe and data give the same weights.

A recipe is written to and read from recipe.toml. Settings are parts of one: from a TOML file, from
`--set a.b=c` or from Python; they are laid over the defaults of a task.
"""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, NoReturn

import tomli_w
from pydantic import Field, PositiveFloat, ValidationError

from qkv.errors import TrainingError, UsageError, unknown
from qkv.legacy import upgrade
from qkv.model import (
    Config,
    Count,
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    Fraction,
    Size,
    Stack,
    validation_message,
)
from qkv.training.optimizer import Linear, MuonAdamW, OptimizerConfig, ScheduleConfig
from qkv.training.tasks import DataConfig, Task

Settings = dict[str, Any]

EVALUATIONS_PER_RUN = 10
STACKS = ("encoder", "decoder")
TABLES = ("data", "tokens", "origin", "task", "model", "optimizer", "schedule")


class TokenizerConfig(Config):
    """How text becomes tokens: the kind of tokenizer and the size of its vocabulary."""

    kind: str | None = None  # one of qkv.text.TOKENIZER_KINDS; none: that of the origin
    vocab_size: Size | None = None  # at most; none: that of the origin
    bpe_dropout: Fraction = 0.0  # probability of skipping a merge in training (Provilkov 2020)


class Origin(Config):
    """The model to fine-tune, and the hash of its manifest."""

    path: str
    sha256: str


AnyModelConfig = Annotated[EncoderOnly | DecoderOnly | EncoderDecoder, Field(discriminator="kind")]


class Recipe(Config):
    """Everything that decides the result of a training run."""

    data: DataConfig
    tokens: TokenizerConfig | None = None  # none: the tokenizer of the origin
    origin: Origin | None = None
    task: Task  # any registered one, by its kind
    model: AnyModelConfig
    optimizer: OptimizerConfig = MuonAdamW()
    schedule: ScheduleConfig = Linear()
    steps: Size
    batch: Size  # tokens per step, padding included
    accumulate: Size = 1  # micro-batches per step
    grad_clip: PositiveFloat = 1.0  # maximum norm of the gradient
    ema: Fraction = 0.0  # decay of the moving average of the weights; 0: none
    patience: Count = 0  # evaluations without improvement before training ends; 0: to the end
    activation_checkpointing: bool = False  # recompute activations in backward, to save memory
    compile: bool = False
    seed: Count = 0
    evaluate_every: Size  # steps

    @property
    def bpe_dropout(self) -> float:
        if self.tokens is None:
            return 0.0
        return self.tokens.bpe_dropout

    def toml(self) -> str:
        """The recipe as a file that `read_recipe` reads back; absent values are left out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def evaluation_interval(steps: int) -> int:
    """The default of `evaluate_every`."""
    return max(1, steps // EVALUATIONS_PER_RUN)


def read_recipe(text: str) -> Recipe:
    """The recipe in this TOML, also if an older version wrote it."""
    return make_recipe(read_toml(text))


def make_recipe(fields: Mapping[str, Any]) -> Recipe:
    try:
        return Recipe.model_validate(fields)
    except ValidationError as error:
        raise TrainingError(validation_message(error)) from None


def read_toml(text: str) -> Settings:
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TrainingError(f"the recipe is not valid TOML: {error}") from None
    return upgrade_settings(fields)


def read_settings(assignments: Iterable[str]) -> Settings:
    """`["optimizer.lr=0.01", "model.width=256"]` as nested settings."""
    settings: Settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise UsageError(f'"{assignment}" sets nothing; write it as in optimizer.lr=0.01')
        table = settings
        *path, last = name.strip().split(".")
        for key in path:
            table = table.setdefault(key, {})
            if not isinstance(table, dict):
                raise UsageError(f'"{assignment}" does not fit "{key}={table}"; leave one out')
        table[last] = _parse_value(value.strip())
    return settings


def upgrade_settings(settings: Mapping[str, Any]) -> Settings:
    """The same settings, or recipe, under the names of this version."""
    return upgrade("recipe.toml", settings)


def renamed_settings(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """A sentence for each setting that `upgrade_settings` gave another name."""
    notes = []
    for (old_name, old_value), (new_name, new_value) in zip(old.items(), new.items(), strict=False):
        if old_name != new_name:
            notes.append(f"the setting {path}{old_name} is now called {path}{new_name}")
        if isinstance(old_value, Mapping) and isinstance(new_value, Mapping):
            notes += renamed_settings(old_value, new_value, f"{path}{new_name}.")
    return notes


def overlay(base: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """The base updated with the settings; a table of another kind replaces the old one."""
    merged = dict(base)
    for name, value in settings.items():
        old = merged.get(name)
        if old is not None and isinstance(old, Mapping) != isinstance(value, Mapping):
            _refuse_nesting(name, value)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            merged[name] = value
        elif value.get("kind", old.get("kind")) != old.get("kind"):
            merged[name] = dict(value)
        else:
            merged[name] = overlay(old, value)
    return merged


def spread_to_stacks(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """Settings of the model that belong to its stacks, such as width and layers, set in each.

    They are named by themselves, `model.width`, or in full, `model.stack.width`. The last one
    counts: `model.width=256` after a complete recipe is for all of its stacks.
    """
    settings = dict(settings)
    of_stacks = settings.pop("stack", {})
    if isinstance(of_stacks, Mapping):
        settings |= of_stacks
    result: Settings = {}
    for name, value in settings.items():
        if name in Stack.model_fields and name not in model:
            for stack in STACKS:
                if stack in model:
                    result[stack] = overlay(result.get(stack, {}), {name: value})
        elif isinstance(value, dict):
            result[name] = overlay(result.get(name, {}), value)
        else:
            result[name] = value
    return result


def follow_sizes(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Settings:
    """The settings, and next to a new width or norm what has to follow it.

    The feed-forward has the same ratio to the width, and heads divide it. A head that is as wide as
    the model, T5's scale of the logits and norms that are equal to that of the layers stay so. What
    the settings name themselves is left alone.
    """
    result = dict(settings)
    for side in STACKS:
        stack = model.get(side)
        changes = settings.get(side)
        if stack is None or changes is None:
            continue
        derived: Settings = {}
        if "width" in changes:
            derived = _sizes_for_width(stack, changes)
        norm = overlay(stack["norm"], changes.get("norm", {}))
        if stack["input_norm"] == stack["norm"]:
            derived["input_norm"] = norm
        result[side] = overlay(derived, changes)
        old_width = stack["width"]
        output = _output_for(model["output"], old_width, changes.get("width", old_width))
        if model["output"].get("norm") == stack["norm"]:
            output["norm"] = norm
        result["output"] = overlay(output, settings.get("output", {}))
    return result


def _sizes_for_width(stack: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    width = changes["width"]
    sizes: Settings = {}
    if not isinstance(width, int):
        return sizes  # an error, which is reported later
    feed_forward = stack["feed_forward"]
    if "kind" not in changes.get("feed_forward", {}):
        inner = round(feed_forward["width"] * width / stack["width"])
        sizes["feed_forward"] = {"width": max(1, inner)}
    attention = stack["attention"]
    heads = attention["heads"]
    if changes.get("attention") or attention.get("head_width") is not None:
        return sizes
    # Pairs of features are rotated, so the width of a head is even.
    while heads > 1 and width % (2 * heads):
        heads -= 1
    if heads != attention["heads"]:
        sizes["attention"] = {"heads": heads}
        if attention.get("kv_heads") is not None:
            kv_heads = min(attention["kv_heads"], heads)
            while heads % kv_heads:
                kv_heads -= 1
            sizes["attention"]["kv_heads"] = kv_heads
    return sizes


def _output_for(output: Mapping[str, Any], old_width: int, width: Any) -> Settings:
    """The settings of an output that follow from the width."""
    derived: Settings = {}
    if output.get("hidden") == old_width:
        derived["hidden"] = width
    if output.get("multiplier") == old_width**-0.5 and isinstance(width, int):
        derived["multiplier"] = width**-0.5
    return derived


def check_names(settings: Mapping[str, Any]) -> None:
    """Raises a UsageError for an unknown setting, before any work is done."""
    for name, value in settings.items():
        if name not in Recipe.model_fields:
            raise UsageError(unknown("setting", name, Recipe.model_fields))
        if (name in TABLES) != isinstance(value, Mapping):
            _refuse_nesting(name, value)


def _refuse_nesting(name: str, value: Any) -> NoReturn:
    """One value where there is a table of settings, or the other way round."""
    if isinstance(value, Mapping):
        raise UsageError(f"{name} is a single setting; there is no {name}.{next(iter(value), '')}")
    raise UsageError(f"{name} is a table of settings; name one, as in {name}.NAME={value}")


def _parse_value(text: str) -> Any:
    """A number, true, false, a list or a quoted string as in TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
