"""`qkv.train`: a model from your own text, the same from Python as from the command line."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from qkv.bundle import MANIFEST, recover
from qkv.device import resolve_device
from qkv.errors import TrainingError, UsageError, suggest_arguments
from qkv.files import read_text, suggest_path
from qkv.machine import set_threads, watch_load
from qkv.training.forecast import check_memory
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.recipe import (
    Recipe,
    Settings,
    overlay,
    read_toml,
    renamed_settings,
    upgrade_settings,
)
from qkv.training.run import RECIPE, Run, begin, reopen
from qkv.training.tasks import DataConfig

PathLike = str | os.PathLike[str]


@suggest_arguments
def train(
    job: str | None = None,
    data: PathLike | Sequence[PathLike] = (),
    *,
    output: PathLike,
    resume: bool = False,
    size: str | None = None,
    preset: str | None = None,
    config: "PathLike | Recipe | None" = None,
    steps: int | None = None,
    epochs: float | None = None,
    tokens: int | None = None,
    minutes: float | None = None,
    from_: PathLike | None = None,
    freeze: bool = False,
    text: str | None = None,
    label: str | None = None,
    source: str | None = None,
    target: str | None = None,
    score: str | None = None,
    skip_bad: bool = False,
    validation: PathLike | Sequence[PathLike] = (),
    tokenizer: str | None = None,
    vocab_size: int | None = None,
    context_length: int | None = None,
    batch: int | None = None,
    optimizer: str | None = None,
    seed: int | None = None,
    compile: bool = False,
    threads: int | None = None,
    device: str | torch.device = "auto",
    settings: Mapping[str, object] | None = None,
) -> Run:
    """A training run that has not taken its first step: iterate it, or call `finish()`.

        run = qkv.train("classify", "reviews.csv", output="runs/reviews", minutes=2)
        for event in run:  # Step, Evaluation, and at the end Finished
            print(event)
        model = qkv.load("runs/reviews")

    job: language, masked, classify, translate, embed, or the kind of a `Task` of your own.
    data: files; none: a built-in corpus for the job. text, label, source, target and score name
    their columns. skip_bad: leave out rows that cannot be used, instead of an error.
    validation: files to measure with, instead of a tenth of the data.
    output: the directory of the run, which becomes a bundle. resume: continue the run in it.
    steps, epochs, tokens or minutes: how long, one of them; minutes are measured at the start.
    size (tiny, small, medium) or preset: the model, unless it is fine-tuned `from_` a directory.
    threads: a fixed number, for results that repeat bit for bit; by default it follows the load.
    config: a recipe.toml or a `Recipe`; keywords take precedence over it, and `settings`, such as
    {"model": {"width": 256}}, over both.
    """
    where = resolve_device(device)
    watch_load()
    if threads is not None:
        set_threads(threads)
    directory = Path(output)
    recover(directory)  # a run killed at its very end may have been moved aside
    if resume:
        return _resume(directory, job, where)
    check_output(directory)
    args = train_args(
        job,
        data,
        size=size,
        preset=preset,
        config=config,
        steps=steps,
        epochs=epochs,
        tokens=tokens,
        minutes=minutes,
        from_=from_,
        freeze=freeze,
        text=text,
        label=label,
        source=source,
        target=target,
        score=score,
        skip_bad=skip_bad,
        validation=validation,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        context_length=context_length,
        batch=batch,
        optimizer=optimizer,
        seed=seed,
        compile=compile,
        settings=settings,
    )
    return start(args, directory, where, minutes)


def start(args: TrainArgs, directory: Path, device: torch.device, minutes: float | None) -> Run:
    """Prepares the run and writes what is needed to resume it."""
    prepared = prepare(args)
    check_memory(prepared.recipe)
    run = Run(prepared, directory, device)
    run.notes += args.notes
    if minutes is not None:
        seconds = run.fit_to_minutes(minutes)
        run.notes.append(
            f"a step takes {1000 * seconds:.0f} ms here: {run.recipe.steps:,} steps in "
            f"{minutes:g} minutes"
        )
    begin(run)
    return run


def _resume(directory: Path, job: str | None, device: torch.device) -> Run:
    if (directory / MANIFEST).exists():
        raise TrainingError(f"the run in {directory} is finished; there is nothing to resume")
    if not (directory / RECIPE).exists():
        raise TrainingError(
            f"there is no run in {directory} to resume; start one without resume=True"
        )
    run = reopen(directory, device, job)
    run.resume(run.notes.append)
    run.notes.append(f"going on after step {run.progress.step:,} of {run.recipe.steps:,}")
    return run


def check_output(directory: Path) -> None:
    """Raises a TrainingError if a new run cannot be written there."""
    if directory.is_file():
        raise TrainingError(
            f"{directory} is a file, but a model is a directory; choose another path"
        )
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    unfinished = (directory / RECIPE).exists() and not (directory / MANIFEST).exists()
    if unfinished:
        raise TrainingError(f"{directory} is not empty; pass resume=True to go on with its run")
    raise TrainingError(f"{directory} is not empty; choose another")


def train_args(
    job: str | None,
    data: PathLike | Sequence[PathLike] = (),
    *,
    config: "PathLike | Recipe | None" = None,
    settings: Mapping[str, object] | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    from_: PathLike | None = None,
    text: str | None = None,
    label: str | None = None,
    source: str | None = None,
    target: str | None = None,
    score: str | None = None,
    skip_bad: bool = False,
    validation: PathLike | Sequence[PathLike] = (),
    **keywords: Any,
) -> TrainArgs:
    """The arguments of `train` as one value: config, over it the keywords, over those settings."""
    lengths = {"minutes": minutes}
    for name in ("steps", "epochs", "tokens"):
        lengths[name] = keywords.get(name)
    names = [name for name, value in lengths.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other; give one of them")
    columns = {"text": text, "label": label, "source": source, "target": target, "score": score}
    data_fields = _data_fields(_paths(data), _paths(validation), columns, skip_bad)
    base = _config_settings(config)
    if job is None:
        job = base.get("task", {}).get("kind")
        if job is None:
            raise UsageError("name a job, or give a config that names one in [task]")
    if config is not None:
        if data_fields:
            base.get("data", {}).pop("sha256", None)  # that of other data
        base = overlay(base, _as_settings(keywords, data_fields, seed))
    old_settings = settings or {}
    new_settings = upgrade_settings(old_settings)
    return TrainArgs(
        job=job,
        data=DataConfig(**data_fields),
        from_=None if from_ is None else Path(from_),
        seed=seed or 0,
        settings=overlay(base, new_settings),
        notes=tuple(renamed_settings(old_settings, new_settings)),
        **keywords,
    )


def _paths(files: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    """Absolute paths, so that a recipe can be used from another directory."""
    if isinstance(files, str | os.PathLike):
        files = (files,)
    return tuple(str(Path(file).absolute()) for file in files)


def _data_fields(
    files: tuple[str, ...],
    validation: tuple[str, ...],
    columns: Mapping[str, str | None],
    skip_bad: bool,
) -> Settings:
    fields: Settings = {"files": files, "validation": validation, **columns, "skip_bad": skip_bad}
    if not files and fields["source"] is not None and fields["target"] is not None:
        # Two parallel files.
        for side in ("source", "target"):
            fields[side] = str(Path(fields[side]).absolute())
    return {name: value for name, value in fields.items() if value}


def _config_settings(config: "PathLike | Recipe | None") -> Settings:
    if config is None:
        return {}
    if isinstance(config, Recipe):
        return config.model_dump(exclude_none=True)
    path = Path(config)
    if not path.exists():
        raise UsageError(f"cannot read {path}: there is no such file{suggest_path(path)}")
    try:
        return read_toml(read_text(path, UsageError, follow_symlinks=True))
    except TrainingError as error:
        raise UsageError(f"{path}: {error}") from None


def _as_settings(keywords: Mapping[str, Any], data_fields: Settings, seed: int | None) -> Settings:
    """The keywords that a recipe has too, as settings to lay over those of a file."""
    settings: Settings = {}
    if seed is not None:
        settings["seed"] = seed
    if keywords.get("compile"):
        settings["compile"] = True
    for name in ("steps", "batch"):
        if keywords.get(name) is not None:
            settings[name] = keywords[name]
    if data_fields:
        settings["data"] = data_fields
    if keywords.get("context_length"):
        settings["model"] = {"length": keywords["context_length"]}
    if keywords.get("optimizer"):
        settings["optimizer"] = {"kind": keywords["optimizer"]}
    return settings
