"""From a few arguments to a complete run: read the data, train a tokenizer, choose a model.

`prepare` fills in a good default for everything that was not asked for. Its result, a `Prepared`,
has the recipe and the data, but not yet the weights.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.bundle import Bundle, fingerprint
from qkv.errors import TrainingError, UsageError, unknown
from qkv.model import (
    SIZES,
    Classify,
    EncoderOnly,
    Learned,
    Model,
    ModelConfig,
    Output,
    Stack,
    build,
    preset,
)
from qkv.text import TOKENIZER_KINDS, Tokenizer, check_dropout_supported
from qkv.training.optimizer import AdamW, Linear
from qkv.training.recipe import (
    Origin,
    Recipe,
    Settings,
    TokenizerConfig,
    check_names,
    evaluation_interval,
    follow_sizes,
    make_recipe,
    overlay,
    spread_to_stacks,
)
from qkv.training.tasks import DataConfig, DataModule, Task, check_columns, find_task

DEFAULT_SIZE = "small"
DEFAULT_CHARACTER_CONTEXT = 128  # of models whose tokens are single letters
MIN_DEFAULT_STEPS = 200  # of a run whose length is chosen by the number of examples
FROZEN_LR = 2e-3
OPTIMIZERS = ("muon", "adamw")


@dataclass(frozen=True)
class TrainArgs:
    """The arguments of `qkv.train`; None is left to the task."""

    job: str
    data: DataConfig = field(default_factory=DataConfig)
    size: str | None = None
    preset: str | None = None
    from_: Path | None = None
    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None  # read in the whole run
    tokenizer: str | None = None
    vocab_size: int | None = None
    context_length: int | None = None
    batch: int | None = None
    optimizer: str | None = None
    freeze: bool = False
    compile: bool = False
    seed: int = 0
    settings: Settings = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # for people, about these arguments


@dataclass(frozen=True)
class Prepared:
    """All a run needs before the first step."""

    recipe: Recipe
    data_module: DataModule
    tokenizer: Tokenizer
    origin: Bundle | None

    def model(self, device: torch.device) -> Any:
        return initial_model(self.recipe, self.origin, device)


def prepare(args: TrainArgs) -> Prepared:
    """Reads the data, trains a tokenizer, chooses a model, and fills in the recipe."""
    check_names(args.settings)
    task = find_task(args.job)
    data = _data(task, args)
    seed = args.settings.get("seed", args.seed)
    if not isinstance(seed, int):
        raise UsageError(f"seed={seed!r} must be an integer")
    _check_arguments(task, args)
    origin = _origin(args)
    split = task.load(data, seed)
    _check_unchanged(data, split.sha256)
    bundle = load_origin(origin)
    if bundle is None:
        config = preset(args.preset or f"{task.presets}-{args.size or DEFAULT_SIZE}")
    else:
        config = bundle.model.config
    tokens, tokenizer = _tokenizer(task, args, config, bundle, split)
    model = _fit_model(task, args, config, tokens, tokenizer, split)
    configured = task.for_data(split)
    if bundle is not None:
        configured = configured.for_finetuning()
    task_fields = configured.model_dump()
    if args.freeze:
        task_fields["frozen"] = True
    defaults = {
        "data": data.model_copy(update={"sha256": split.sha256}).model_dump(),
        "tokens": tokens,
        "origin": origin,
        "task": task_fields,
        "model": model.model_dump(),
        **_optimization(task, args, model, bundle),
        "steps": args.steps or task.max_steps,
        "batch": args.batch or task.default_batch(split),
        "ema": task.ema if bundle is None else task.finetune_ema,
        "patience": task.patience,
        "compile": args.compile,
        "seed": seed,
        "evaluate_every": 1,
    }
    recipe = _apply_settings(defaults, args.settings, model)
    data_module = _data_module(split, tokenizer, recipe)
    recipe = _apply_budget(args, recipe, data_module, task.epochs)
    return Prepared(recipe, data_module, tokenizer, bundle)


def prepare_again(recipe: Recipe, tokenizer: Tokenizer) -> Prepared:
    """The run of a recipe once more, to be resumed; raises if the data has changed."""
    split = recipe.task.load(recipe.data, recipe.seed)
    _check_unchanged(recipe.data, split.sha256)
    data_module = _data_module(split, tokenizer, recipe)
    return Prepared(recipe, data_module, tokenizer, load_origin(recipe.origin))


def _apply_settings(defaults: Settings, settings: Settings, model: ModelConfig) -> Recipe:
    settings = dict(settings)
    for name in ("data", "tokens", "origin"):  # already in the defaults
        settings.pop(name, None)
    settings["model"] = spread_to_stacks(defaults["model"], settings.get("model", {}))
    if _is_complete(settings["model"]):
        del defaults["model"]  # a complete one, of a recipe: what it does not name, it lacks
    else:
        settings["model"] = follow_sizes(defaults["model"], settings["model"])
    fields = overlay(defaults, settings)
    # A recipe used again has the vocabulary of its old tokenizer; the new one decides.
    fields["model"]["embedding"]["vocabulary"] = model.embedding.vocabulary
    recipe = make_recipe(fields)
    _check_output(recipe, model)
    if "evaluate_every" in settings:
        return recipe
    return recipe.model_copy(update={"evaluate_every": evaluation_interval(recipe.steps)})


def _is_complete(model: Mapping[str, Any]) -> bool:
    return {"kind", "length", "embedding"} <= model.keys()


def _data_module(split: Any, tokenizer: Tokenizer, recipe: Recipe) -> DataModule:
    data_module = recipe.task.data_module(split, tokenizer, recipe)
    data_module.remarks[:0] = getattr(split, "remarks", ())  # a task of one's own may have none
    built_in = not recipe.data.files and not recipe.data.source
    if recipe.task.synthetic_corpus and built_in:
        remark = "the built-in corpus is synthetic: a grammar made its sentences"
        data_module.remarks.insert(0, remark)
    return data_module


def _data(task: type[Task], args: TrainArgs) -> DataConfig:
    fields = args.data.model_dump(exclude_unset=True)
    data = DataConfig(**overlay(fields, args.settings.get("data", {})))
    check_columns(task, data)
    if data.bidirectional:
        _check_support(task, "data.bidirectional", lambda other: other.supports_bidirectional)
    return data


def _check_unchanged(data: DataConfig, sha256: str) -> None:
    if data.sha256 not in ("", sha256):
        raise TrainingError("the data is not what the recipe was made for; it has changed since")


def _check_output(recipe: Recipe, model: ModelConfig) -> None:
    output = recipe.model.output
    needed = model.output
    if output.kind != needed.kind:
        raise UsageError(f"{recipe.task.kind} needs the output {needed.kind}, not {output.kind}")
    if _labels(output) != _labels(needed):
        raise TrainingError(
            f"the settings name the labels {', '.join(_labels(output))}, but those of the data "
            f"are {', '.join(_labels(needed))}"
        )


def _check_arguments(task: type[Task], args: TrainArgs) -> None:
    """Raises a UsageError for unknown names and for arguments that exclude each other."""
    choices = {"size": SIZES, "tokenizer": TOKENIZER_KINDS, "optimizer": OPTIMIZERS}
    for name, options in choices.items():
        value = getattr(args, name)
        if value is not None and value not in options:
            raise UsageError(unknown(name, value, options))
    for name in ("preset", "size"):
        value = getattr(args, name)
        if value is None:
            continue
        if args.from_ is not None:
            raise UsageError(
                f"with from_ the model is that of the bundle; leave {name}={value!r} out"
            )
        if _is_complete(args.settings.get("model", {})):
            raise UsageError(f"the settings describe a complete model; leave {name}={value!r} out")
    if args.freeze and task.name() != "classify":
        raise UsageError(f"freeze=True is for classify, not for {task.name()}")
    if args.freeze and args.from_ is None:
        raise UsageError("freeze=True needs from_: an untrained encoder has nothing to build on")
    kind = args.settings.get("task", {}).get("kind", task.name())
    if kind != task.name():
        raise UsageError(f"the settings are for {kind}, but the job is {task.name()}")


def _check_support(task: type[Task], setting: str, supports: Callable[[type[Task]], bool]) -> None:
    """Raises a UsageError if the task does not support the setting, naming those that do."""
    if not supports(task):
        tasks = Task.variants()
        names = " and ".join(name for name, other in tasks.items() if supports(other))
        raise UsageError(f"{setting} is for {names}, not for {task.name()}; leave it out")


# The tokenizer


def _tokenizer(
    task: type[Task], args: TrainArgs, config: ModelConfig, bundle: Bundle | None, split: Any
) -> tuple[TokenizerConfig | None, Tokenizer]:
    settings = args.settings.get("tokens", {})
    if bundle is not None:
        if bundle.tokenizer is None:
            raise TrainingError("the model to fine-tune has no tokenizer")
        if args.tokenizer or args.vocab_size or settings.keys() - {"bpe_dropout"}:
            raise UsageError("with from_ the tokenizer is that of the bundle; leave it out")
        tokens = TokenizerConfig(**settings)
        _check_bpe_dropout(task, tokens.bpe_dropout, bundle.tokenizer.kind)
        return (tokens if tokens.bpe_dropout else None), bundle.tokenizer
    vocab_size = task.max_vocab_size or config.embedding.vocabulary
    fields = {"kind": task.tokenizer_kind, "vocab_size": vocab_size, **settings}
    if args.tokenizer is not None:
        fields["kind"] = args.tokenizer
    if args.vocab_size is not None:
        fields["vocab_size"] = args.vocab_size
    tokens = TokenizerConfig(**fields)
    assert tokens.kind is not None
    assert tokens.vocab_size is not None
    _check_bpe_dropout(task, tokens.bpe_dropout, tokens.kind)
    return tokens, Tokenizer.train(tokens.kind, task.texts(split), tokens.vocab_size)


def _check_bpe_dropout(task: type[Task], probability: float, kind: str) -> None:
    if not probability:
        return
    _check_support(task, "tokens.bpe_dropout", lambda other: other.supports_bpe_dropout)
    if kind in TOKENIZER_KINDS:  # else it is the kind that is wrong, which is reported later
        check_dropout_supported(kind)


# The model


def _fit_model(
    task: type[Task],
    args: TrainArgs,
    config: ModelConfig,
    tokens: TokenizerConfig | None,
    tokenizer: Tokenizer,
    split: Any,
) -> ModelConfig:
    """The model config with the context length, vocabulary and output this run needs."""
    length = args.context_length or config.length
    finetuned = tokens is None or tokens.kind is None
    if finetuned and length > config.length and _has_learned_positions(config):
        raise UsageError(
            f"context_length={length} is more than the {config.length} positions the model to "
            f"fine-tune has learned"
        )
    single_letters = tokens is not None and tokens.kind in ("characters", "bytes")
    if single_letters and task.name() == "language" and args.context_length is None:
        length = DEFAULT_CHARACTER_CONTEXT
    # The embedding of a pretrained model may have more rows than its tokenizer has tokens.
    vocab_size = config.embedding.vocabulary if finetuned else tokenizer.vocab_size
    return task.fit_config(config, vocab_size, split).model_copy(update={"length": length})


def _has_learned_positions(config: ModelConfig) -> bool:
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if stack is not None and isinstance(stack.position, Learned):
            return True
    return False


def _optimization(
    task: type[Task], args: TrainArgs, model: ModelConfig, bundle: Bundle | None
) -> dict[str, Any]:
    """The optimizer and its schedule: small steps where a trained model is fine-tuned."""
    if bundle is not None and args.optimizer != "muon":
        stack: Stack = model.encoder if isinstance(model, EncoderOnly) else model.decoder
        lr = FROZEN_LR if args.freeze else task.finetune_lr / stack.width
        optimizer = AdamW(lr=lr, weight_decay=0.01, beta2=0.98)
        return {"optimizer": optimizer.model_dump(), "schedule": Linear(hold=0.0).model_dump()}
    default = AdamW() if args.optimizer == "adamw" else task.default_optimizer()
    return {"optimizer": default.model_dump(), "schedule": task.default_schedule().model_dump()}


# The budget


def _apply_budget(
    args: TrainArgs, recipe: Recipe, data_module: DataModule, default_epochs: float | None
) -> Recipe:
    """Epochs and tokens as steps, the only unit a recipe knows."""
    if args.epochs is not None or args.tokens is not None:
        steps = steps_for(data_module, args.epochs, args.tokens)
    elif args.steps is None and "steps" not in args.settings and default_epochs is not None:
        by_epochs = round(default_epochs * len(data_module.batch_indices(0)))
        steps = max(MIN_DEFAULT_STEPS, min(recipe.steps, by_epochs))
    else:
        return recipe
    every = args.settings.get("evaluate_every", evaluation_interval(steps))
    return recipe.model_copy(update={"steps": steps, "evaluate_every": every})


def steps_for(data_module: DataModule, epochs: float | None, tokens: int | None) -> int:
    """The steps in which the model reads so many epochs, or tokens."""
    if epochs is not None:
        return max(1, round(epochs * len(data_module.batch_indices(0))))
    assert tokens is not None
    return max(1, round(tokens / _tokens_per_step(data_module)))


def _tokens_per_step(data_module: DataModule, steps: int = 64) -> float:
    """Without padding; a batch is often closed before it is full, to have little of it."""
    batches = data_module.batch_indices(0)[:steps]  # already shuffled
    rng = np.random.default_rng(0)
    return statistics.mean(data_module.batch(batch, rng).num_tokens for batch in batches)


# The initial weights


def origin_of(directory: Path) -> Origin:
    """The bundle or public checkpoint in that directory, by path and content."""
    return Origin(path=str(directory.absolute()), sha256=fingerprint(directory))


def _origin(args: TrainArgs) -> Origin | None:
    if args.from_ is not None:
        return origin_of(args.from_)
    settings = args.settings.get("origin")
    if settings is None:
        return None
    return Origin(**settings)


def load_origin(origin: Origin | None) -> Bundle | None:
    """The bundle to fine-tune, if any; raises if it is not the one the recipe was made with."""
    if origin is None:
        return None
    path = Path(origin.path)
    if not path.exists():
        raise TrainingError(f"{path}, which this run fine-tunes, is gone; put it back to go on")
    if origin_of(path).sha256 != origin.sha256:
        raise TrainingError(f"{path} has changed since the recipe was made")
    return Bundle.load(path)


def initial_model(recipe: Recipe, origin: Bundle | None, device: torch.device) -> Model:
    """Random weights from the seed; with an origin, all of its weights that fit.

    The output layer is copied only if the task and its labels are the same.
    """
    model = build(recipe.model, recipe.seed, device)
    if origin is None:
        return model
    old_output = origin.model.config.output
    new_output = recipe.model.output
    same_kind = old_output.kind == new_output.kind
    same_output = same_kind and _labels(old_output) == _labels(new_output)
    weights = model.state_dict()
    for name, tensor in origin.model.state_dict().items():
        is_output = name.startswith("output.")
        if is_output and not same_output:
            continue
        if name.endswith("position.weight") and name in weights:
            tensor = tensor[: len(weights[name])]  # a shorter context: the first positions
        if name in weights and weights[name].shape == tensor.shape:
            weights[name] = tensor
        elif not is_output:
            raise TrainingError(
                f"the model to fine-tune does not fit this one: its {name} is {tuple(tensor.shape)}"
            )
    model.load_state_dict(weights)
    return model


def _labels(output: Output) -> tuple[str, ...]:
    if isinstance(output, Classify):
        return output.labels
    return ()
