"""`qkv.train`: a model from your own text, the same from Python as from the command line."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qkv.bundle import MANIFEST, TOKENIZER, recover
from qkv.device import resolve_device
from qkv.errors import TrainingError, UsageError, suggest_arguments
from qkv.files import read_text, suggest_path
from qkv.machine import set_threads, watch_load
from qkv.text import Tokenizer
from qkv.training.checkpoint import read_progress
from qkv.training.forecast import check_memory
from qkv.training.prepare import TrainArgs, prepare, prepare_again, steps_for
from qkv.training.recipe import (
    Recipe,
    Settings,
    overlay,
    read_recipe,
    read_toml,
    renamed_settings,
    upgrade_settings,
)
from qkv.training.run import Run
from qkv.training.run_directory import CHECKPOINTS, RECIPE, begin, lock, unfinish, write_recipe
from qkv.training.tasks import DataConfig

PathLike = str | os.PathLike[str]


@suggest_arguments
def train(
    job: str | None = None,
    data: PathLike | Sequence[PathLike] = (),
    *,
    output: PathLike,
    resume: bool = False,
    finish: bool = False,
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
    output: the directory of the run, which becomes a bundle. The best weights so far can be loaded
    from it while it trains, and when it was stopped.
    resume: continue the run in it; steps, epochs, tokens or minutes may change its length.
    finish: take no more steps; the run in it only evaluates and reports what there is.
    steps, epochs, tokens or minutes: how long, one of them. minutes are a limit for everything;
    how many steps fit is measured at the start.
    size (tiny, small, medium) or preset: the model, unless it is fine-tuned `from_` a directory.
    threads: a fixed number, for results that repeat bit for bit; by default it follows the load.
    config: a recipe.toml or a `Recipe`; keywords take precedence over it, and `settings`, such as
    {"model": {"width": 256}}, over both.
    """
    start_time = time.perf_counter()
    where = resolve_device(device)
    watch_load()
    if threads is not None:
        set_threads(threads)
    directory = Path(output)
    recover(directory)  # a run killed at its very end may have been moved aside
    if resume or finish:
        length = RunLength(steps, epochs, tokens, minutes, start_time)
        return _reopen(directory, job, where, finish, length)
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
    return start(args, directory, where, minutes, start_time)


def start(
    args: TrainArgs,
    directory: Path,
    device: torch.device,
    minutes: float | None,
    start_time: float | None = None,
) -> Run:
    """Prepares the run and writes what is needed to resume it; minutes count from start_time."""
    prepared = prepare(args)
    check_memory(prepared.recipe)
    run = Run(prepared, directory, device)
    run.notes += args.notes
    if minutes is not None:
        _fit_to_minutes(run, minutes, start_time)
    begin(run)
    return run


@dataclass(frozen=True)
class RunLength:
    """How long a run that is resumed shall be: one of these, or as it was planned."""

    steps: int | None
    epochs: float | None
    tokens: int | None
    minutes: float | None
    start_time: float  # from which the minutes count

    def __post_init__(self) -> None:
        _check_one_length(self.lengths())

    def lengths(self) -> dict[str, float | None]:
        return {
            "minutes": self.minutes,
            "steps": self.steps,
            "epochs": self.epochs,
            "tokens": self.tokens,
        }

    @property
    def is_new(self) -> bool:
        return any(value is not None for value in self.lengths().values())

    def apply(self, run: Run) -> None:
        """Sets the number of steps of the run, and writes its recipe."""
        if self.minutes is not None:
            _fit_to_minutes(run, self.minutes, self.start_time)
        else:
            steps = self.steps or steps_for(run.data_module, self.epochs, self.tokens)
            if steps < run.progress.step:
                run.notes.append(
                    f"{run.progress.step:,} steps are done already, more than {steps:,}: no more "
                    "are taken"
                )
            run.change_length(max(steps, run.progress.step))
        if run.out_of_patience:
            run.notes.append(
                f"the run had stopped early, after {run.recipe.patience} evaluations without "
                "improvement; it no longer does"
            )
            run.recipe = run.recipe.model_copy(update={"patience": 0})
        write_recipe(run.directory, run.recipe)


def _fit_to_minutes(run: Run, minutes: float, start_time: float | None) -> None:
    seconds = run.fit_to_minutes(minutes, start_time)
    steps = run.recipe.steps - run.progress.step
    run.notes.append(
        f"a step takes {1000 * seconds:.0f} ms here: {steps:,} steps in {minutes:g} minutes"
    )


def reopen(directory: Path, device: torch.device, job: str | None = None) -> Run:
    """The run in that directory, before `resume`; raises if it is for another job."""
    recipe = read_recipe((directory / RECIPE).read_text("utf-8"))
    if job not in (None, recipe.task.kind):
        raise TrainingError(f"the run in {directory} is for {recipe.task.kind}, not for {job}")
    tokenizer = Tokenizer.load(directory / TOKENIZER)
    return Run(prepare_again(recipe, tokenizer), directory, device)


def _reopen(
    directory: Path, job: str | None, device: torch.device, finish: bool, length: RunLength
) -> Run:
    """The run in the directory, to be resumed or only finished."""
    purpose = "finish" if finish else "resume"
    if not (directory / RECIPE).exists():
        raise TrainingError(
            f"there is no run in {directory} to {purpose}; start one without {purpose}=True"
        )
    if finish and length.is_new:
        raise UsageError("finish=True takes no more steps; leave the length of the run out")
    run = reopen(directory, device, job)
    with lock(directory):
        if (directory / MANIFEST).exists():
            _check_steps_left(run, finish or length.is_new)
            unfinish(directory)
        run.resume(run.notes.append)
    step = run.progress.step
    if finish:
        if step == 0:
            raise TrainingError(
                f"the run in {directory} was stopped before anything was saved; continue it with "
                "resume=True"
            )
        run.stop_here()
        return run
    if length.is_new:
        length.apply(run)
    run.notes.append(f"going on after step {step:,} of {run.recipe.steps:,}")
    return run


def _check_steps_left(run: Run, has_purpose: bool) -> None:
    """Raises a TrainingError if the run is finished, and there is nothing to do with it."""
    directory = run.directory
    progress = read_progress(directory / CHECKPOINTS)
    if progress is None:
        raise TrainingError(
            f"the run in {directory} is finished and its checkpoints are gone; to train its model "
            "further, start a new run with from_"
        )
    run.progress = progress
    if not has_purpose and (progress.step >= run.recipe.steps or run.out_of_patience):
        raise TrainingError(
            f"the run in {directory} is finished; there is nothing to resume, unless you pass more "
            f"steps, as in steps={2 * progress.step}, or minutes"
        )


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
    _check_one_length(lengths)
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


def _check_one_length(lengths: Mapping[str, float | None]) -> None:
    names = [name for name, value in lengths.items() if value is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} exclude each other; give one of them")


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
