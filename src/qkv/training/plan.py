"""From what a person asks for to a whole run: good defaults for everything not said."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.bundle import Bundle, fingerprint
from qkv.errors import TrainingError, UsageError, unknown
from qkv.model import Classify, EncoderOnly, Learned, Model, Stack, build, preset
from qkv.model.build import ModelConfig
from qkv.model.output import Output
from qkv.model.presets import SIZES
from qkv.text import TOKENIZER_KINDS, Tokenizer
from qkv.text.bpe_dropout import check_dropout_supported
from qkv.training.jobs import JOBS, find_job
from qkv.training.jobs.base import DataModule, Job, refuse_roles
from qkv.training.optimizer import AdamW, Linear
from qkv.training.recipe import (
    Data,
    Origin,
    Recipe,
    Settings,
    Tokens,
    check_names,
    evaluations,
    in_every_stack,
    laid_over,
    make_recipe,
)

# FOLDED train/start: The model a run begins with: fresh, or one that has learnt something
#   already.


def origin_of(directory: Path) -> Origin:
    """The bundle or public checkpoint in that place, by path and content."""
    return Origin(path=str(directory.absolute()), sha256=fingerprint(directory))


def load_origin(origin: Origin) -> Bundle:
    """The bundle, refused if it is no longer the one the recipe was made with."""
    place = Path(origin.path)
    if not place.exists():
        raise TrainingError(f"{place}, which this run began with, is gone; put it back to go on")
    if origin_of(place).sha256 != origin.sha256:
        raise TrainingError(f"{place} has changed since the recipe was made")
    return Bundle.load(place)


def begin(recipe: Recipe, origin: Bundle | None, device: torch.device) -> Model:
    """Fresh weights from the seed; from an origin, all that fits is taken over.

    The output is taken over too if the job is the same, with the same labels; else it begins anew.
    """
    model = build(recipe.model, recipe.seed, device)
    if origin is not None:
        weights, before = model.state_dict(), origin.model.config.output
        other = before.kind != recipe.model.output.kind or _labels(before) != _labels(
            recipe.model.output
        )
        for name, learnt in origin.model.state_dict().items():
            if name.startswith("output.") and other:
                continue
            if name.endswith("position.weight") and name in weights:
                learnt = learnt[: len(weights[name])]  # a shorter context: the first positions
            if name in weights and weights[name].shape == learnt.shape:
                weights[name] = learnt
            elif not name.startswith("output."):
                raise TrainingError(
                    f"{recipe.origin.path if recipe.origin else 'the origin'}: {name} is "
                    f"{tuple(learnt.shape)} there and does not fit this model"
                )
        model.load_state_dict(weights)
    return model


def _labels(output: Output) -> tuple[str, ...]:
    return output.labels if isinstance(output, Classify) else ()


SIZE = "small"

LEAST_STEPS = 200  # of a run whose length nobody asked for

FEW_CHARACTERS = 128  # the context of models whose tokens are single letters


@dataclass(frozen=True)
class TrainArgs:
    """What the command line says; None is left to the job."""

    job: str
    data: Data = field(default_factory=Data)
    size: str | None = None
    preset: str | None = None
    origin: Path | None = None
    steps: int | None = None
    epochs: float | None = None
    tokens: int | None = None  # read in all
    tokenizer: str | None = None
    vocabulary: int | None = None
    context: int | None = None
    batch: int | None = None
    optimizer: str | None = None
    freeze: bool = False
    compile: bool = False
    seed: int = 0
    settings: Settings = field(default_factory=dict)  # of --config and --set


@dataclass(frozen=True)
class Prepared:
    """All a run needs, before the first step."""

    job: Job[Any]
    recipe: Recipe
    data_module: DataModule
    tokenizer: Tokenizer
    origin: Bundle | None

    def model(self, device: torch.device) -> Any:
        return begin(self.recipe, self.origin, device)


def prepare(args: TrainArgs) -> Prepared:
    """Read the data, learn a tokenizer, choose a model, and make everything ready."""
    check_names(args.settings)
    job, seed = find_job(args.job), args.settings.get("seed", args.seed)
    if not isinstance(seed, int):
        raise UsageError(f"seed={seed!r} must be a whole number")
    data = Data(
        **laid_over(args.data.model_dump(exclude_unset=True), args.settings.get("data", {}))
    )
    refuse_roles(job, data)
    if data.bidirectional:
        _check_able(job, "data.bidirectional", lambda other: other.turns)
    _check_kind(job, args)
    origin = _origin(args)
    parts = job.load(data, seed)
    _refuse_other_data(data, parts.sha256)
    bundle = None if origin is None else load_origin(origin)
    config = _shape(job, args) if bundle is None else bundle.model.config
    tokens, tokenizer = _tokenizer(job, args, config, bundle, parts)
    task = job.task(parts)
    model = _fitted(job, args, config, tokens, tokenizer, parts)
    fields = {
        "data": data.model_copy(update={"sha256": parts.sha256}).model_dump(),
        "tokens": None if tokens is None else tokens.model_dump(),
        "origin": None if origin is None else origin.model_dump(),
        "task": task.model_dump() | ({"frozen": True} if args.freeze else {}),
        "model": model.model_dump(),
        **_learning(job, args, model, bundle),
        "steps": args.steps or job.steps,
        "batch": args.batch or job.usual_batch(parts),
        "ema": job.ema if bundle is None else job.tuned_ema,
        "patience": job.patience,
        "compile": args.compile,
        "seed": seed,
        "evaluate_every": 1,
    }
    settings = dict(args.settings)
    for decided in ("data", "tokens", "origin"):
        settings.pop(decided, None)
    settings["model"] = in_every_stack(fields["model"], settings.get("model", {}))
    if _is_whole(settings["model"]):
        del fields["model"]  # a whole one, of a recipe: what it does not name, it does not have
    fields = laid_over(fields, settings)
    fields["model"]["embedding"]["vocabulary"] = model.embedding.vocabulary
    recipe = make_recipe(fields)
    _refuse_other_output(recipe, model)
    if "evaluate_every" not in settings:
        recipe = recipe.model_copy(update={"evaluate_every": evaluations(recipe.steps)})
    data_module = _lesson(job, parts, tokenizer, recipe)
    recipe = _budget(args, recipe, data_module, job.epochs)
    return Prepared(job, recipe, data_module, tokenizer, bundle)


def prepare_again(recipe: Recipe, tokenizer: Tokenizer) -> Prepared:
    """The run of a recipe once more, to be resumed; its data must be what it was."""
    job = find_job(recipe.task.kind)
    parts = job.load(recipe.data, recipe.seed)
    _refuse_other_data(recipe.data, parts.sha256)
    origin = None if recipe.origin is None else load_origin(recipe.origin)
    return Prepared(job, recipe, _lesson(job, parts, tokenizer, recipe), tokenizer, origin)


def _lesson(job: Job[Any], parts: Any, tokenizer: Tokenizer, recipe: Recipe) -> DataModule:
    data_module = job.data_module(parts, tokenizer, recipe)
    own = recipe.data.files or recipe.data.source
    if job.synthetic and not own:
        data_module.remarks.insert(
            0, "the built-in corpus is synthetic: a grammar made its sentences"
        )
    return data_module


def _is_whole(model: Mapping[str, Any]) -> bool:
    return {"kind", "length", "embedding"} <= model.keys()


def _refuse_other_data(data: Data, sha256: str) -> None:
    if data.sha256 not in ("", sha256):
        raise TrainingError("the data is not what the recipe was made for; it has changed since")


def _refuse_other_output(recipe: Recipe, fitted: ModelConfig) -> None:
    said, needed = recipe.model.output, fitted.output
    if said.kind != needed.kind:
        raise UsageError(f"{recipe.task.kind} needs the output {needed.kind}, not {said.kind}")
    if isinstance(said, Classify) and isinstance(needed, Classify) and said.labels != needed.labels:
        raise TrainingError(
            f"the settings name the labels {', '.join(said.labels)}, but those of the data are "
            f"{', '.join(needed.labels)}"
        )


def _check_kind(job: Job[Any], args: TrainArgs) -> None:
    if args.size is not None and args.size not in SIZES:
        raise UsageError(unknown("size", args.size, SIZES))
    if args.tokenizer is not None and args.tokenizer not in TOKENIZER_KINDS:
        raise UsageError(unknown("tokenizer", args.tokenizer, TOKENIZER_KINDS))
    if args.optimizer is not None and args.optimizer not in ("muon", "adamw"):
        raise UsageError(unknown("optimizer", args.optimizer, ("muon", "adamw")))
    for option, value in (("--preset", args.preset), ("--size", args.size)):
        if value is not None and args.origin is not None:
            raise UsageError(f"with --from the model is that of the bundle; leave {option} out")
        if value is not None and _is_whole(args.settings.get("model", {})):
            raise UsageError(f"the settings describe a whole model; leave {option} out")
    if args.freeze and job.name != "classify":
        raise UsageError(f"--freeze is for classify, not for {job.name}")
    if args.freeze and args.origin is None:
        raise UsageError("--freeze needs --from DIR: a fresh encoder knows nothing to build on")
    kind = args.settings.get("task", {}).get("kind", job.name)
    if kind != job.name:
        raise UsageError(f"the settings are for {kind}, but the job is {job.name}")


def _origin(args: TrainArgs) -> Origin | None:
    if args.origin is not None:
        return origin_of(args.origin)
    said = args.settings.get("origin")
    return None if said is None else Origin(**said)


def _shape(job: Job[Any], args: TrainArgs) -> ModelConfig:
    return preset(args.preset or f"{job.name}-{args.size or SIZE}")


def _tokenizer(
    job: Job[Any], args: TrainArgs, config: ModelConfig, bundle: Bundle | None, parts: Any
) -> tuple[Tokens | None, Tokenizer]:
    said = args.settings.get("tokens", {})
    if bundle is not None:
        if bundle.tokenizer is None:
            raise TrainingError("the bundle to train further has no tokenizer")
        if args.tokenizer or args.vocabulary or said.keys() - {"bpe_dropout"}:
            raise UsageError("with --from the tokenizer is that of the bundle; leave it out")
        tokens = Tokens(**said)
        _check_noise(job, tokens.bpe_dropout, bundle.tokenizer.kind)
        return tokens if tokens.bpe_dropout else None, bundle.tokenizer
    usual = {"kind": job.tokens, "vocab_size": job.vocabulary or config.embedding.vocabulary}
    asked = {"kind": args.tokenizer, "vocab_size": args.vocabulary}
    tokens = Tokens(**{**usual, **said, **{name: v for name, v in asked.items() if v is not None}})
    assert tokens.kind is not None
    assert tokens.vocab_size is not None
    _check_noise(job, tokens.bpe_dropout, tokens.kind)
    return tokens, Tokenizer.train(tokens.kind, job.texts(parts), tokens.vocab_size)


def _check_noise(job: Job[Any], noise: float, kind: str) -> None:
    if noise:
        _check_able(job, "tokens.bpe_dropout", lambda other: other.noisy)
    if noise and kind in TOKENIZER_KINDS:  # else what is wrong is the kind
        check_dropout_supported(kind)


def _check_able(job: Job[Any], setting: str, able: Callable[[Job[Any]], bool]) -> None:
    """A setting for some jobs only was given: refuse it for the others, by name."""
    if not able(job):
        names = " and ".join(name for name, other in JOBS.items() if able(other))
        raise UsageError(f"{setting} is for {names}, not for {job.name}; leave it out")


def _fitted(
    job: Job[Any],
    args: TrainArgs,
    config: ModelConfig,
    tokens: Tokens | None,
    tokenizer: Tokenizer,
    parts: Any,
) -> ModelConfig:
    length = args.context or config.length
    learnt = tokens is None or tokens.kind is None  # with the model to go on from
    if learnt and length > config.length and _learned(config):
        raise UsageError(
            f"--context {length} is more than the {config.length} positions that the model to go "
            f"on from has learnt"
        )
    letters = tokens is not None and tokens.kind in ("characters", "bytes")
    if letters and job.name == "language" and args.context is None:
        length = FEW_CHARACTERS
    # A table learnt elsewhere may have rows to spare.
    vocabulary = config.embedding.vocabulary if learnt else tokenizer.vocab_size
    fitted = job.fit(config, vocabulary, parts)
    return fitted.model_copy(update={"length": length})


def _learned(config: ModelConfig) -> bool:
    stacks = (getattr(config, name, None) for name in ("encoder", "decoder"))
    return any(isinstance(s.position, Learned) for s in stacks if s is not None)


def _learning(
    job: Job[Any], args: TrainArgs, model: ModelConfig, bundle: Bundle | None
) -> dict[str, Any]:
    """The optimizer and its schedule: careful steps where something was learnt before."""
    if bundle is not None and args.optimizer != "muon":
        stack: Stack = model.encoder if isinstance(model, EncoderOnly) else model.decoder
        rate = job.tuned_lr / stack.width if not args.freeze else 2e-3
        optimizer: Any = AdamW(lr=rate, weight_decay=0.01, beta2=0.98)
        return {"optimizer": optimizer.model_dump(), "schedule": Linear(hold=0.0).model_dump()}
    optimizer = AdamW() if args.optimizer == "adamw" else job.optimizer()
    return {"optimizer": optimizer.model_dump(), "schedule": job.schedule().model_dump()}


def _budget(
    args: TrainArgs, recipe: Recipe, data_module: DataModule, epochs: float | None
) -> Recipe:
    """Epochs and tokens are turned into steps; the recipe only knows those."""
    if args.epochs is not None:
        steps = max(1, round(args.epochs * len(data_module.order(0))))
    elif args.tokens is not None:
        steps = max(1, round(args.tokens / _tokens_a_step(data_module)))
    elif args.steps is None and "steps" not in args.settings and epochs is not None:
        steps = max(LEAST_STEPS, min(recipe.steps, round(epochs * len(data_module.order(0)))))
    else:
        return recipe
    every = args.settings.get("evaluate_every", evaluations(steps))
    return recipe.model_copy(update={"steps": steps, "evaluate_every": every})


def _tokens_a_step(data_module: DataModule, steps: int = 64) -> float:
    """Real ones; a batch is often closed before it is full, so that it has little padding."""
    some = data_module.order(0)[:steps]  # in no order of length
    return statistics.mean(data_module.batch(n, np.random.default_rng(0)).tokens for n in some)
