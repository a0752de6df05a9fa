"""One training run in its directory: a stream of events that can be stopped and resumed anywhere.

    for event in qkv.train("classify", "reviews.csv", output="runs/reviews"):
        print(event)  # a Step, an Evaluation, and at the end a Finished

The directory holds recipe.toml, tokenizer.json, metrics.jsonl and checkpoints while it trains, and
becomes a bundle of the best weights when it is finished.
"""

import copy
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qkv.bundle import TOKENIZER, Bundle
from qkv.engine.optimized import can_optimize
from qkv.errors import TrainingError
from qkv.files import write_error_message
from qkv.legacy import upgrade
from qkv.model import Layers, Model
from qkv.report import TrainingReport, write_report
from qkv.text import TOKENIZER_COMPANIONS, Tokenizer
from qkv.training.checkpoint import (
    Progress,
    checkpoint_path,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)
from qkv.training.fused_model import fuse, fuse_muon
from qkv.training.prepare import Prepared, prepare_again
from qkv.training.recipe import EVALUATIONS_PER_RUN, evaluation_interval, read_recipe
from qkv.training.tasks import Batch, EvalResult
from qkv.training.trainer import EMA, Step, Trainer, checkpoint_activations

RECIPE = "recipe.toml"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"

WARM_UP_STEPS = 3  # not timed
MIN_TIMED_STEPS = 10  # of a run whose length is given in minutes
MAX_EVALUATION_FRACTION = 0.3  # of a time budget
FINAL_EVALUATION_COST = 2  # in evaluations: it looks at more examples, with a baseline
SAFETY_MARGIN = 0.95  # of the time left for steps


@dataclass(frozen=True)
class Evaluation:
    """The validation metrics after `number` steps; `value` is the one that decides."""

    number: int
    scores: dict[str, float]
    value: float
    best: bool  # so far
    sample: str  # some output of the model


@dataclass(frozen=True)
class Finished:
    """The run is over, and its directory is a bundle that `qkv.load` opens."""

    directory: Path
    result: EvalResult


Event = Step | Evaluation


class Run:
    """A recipe, its data and a model. Iterate it to train, or call `finish()` to train to the end.

    Iterating again continues where the last loop stopped; so does a new process after `save()`.
    """

    def __init__(self, prepared: Prepared, directory: Path, device: torch.device) -> None:
        self.recipe = prepared.recipe
        self.task = prepared.recipe.task
        self.data_module = prepared.data_module
        self.tokenizer = prepared.tokenizer
        self.directory = directory
        self.device = device
        self.model: Model = prepared.model(device)
        self.notes: list[str] = []  # for people, such as how long a step takes
        # After the weights: dropout starts from the seed, however they were initialized.
        torch.manual_seed(self.recipe.seed)
        self.data_module.prepare_model(self.model)
        self.trainer = self._make_trainer(self.model, self.recipe.steps)
        self.progress = Progress()

    def __iter__(self) -> Iterator[Event | Finished]:
        """Steps and evaluations to the end of the run, then one Finished."""
        yield from self.events()
        yield Finished(self.directory, self.finish())

    def events(self) -> Iterator[Event]:
        """The remaining steps, and evaluations with a checkpoint after each."""
        if self._evaluation_is_due:  # it was stopped between a step and its evaluation
            yield self._evaluate()
        if self.out_of_patience:
            return
        for step in self.trainer.steps(self._batches(self.trainer.step)):
            self.progress = replace(
                self.progress,
                step=step.number,
                tokens=self.progress.tokens + step.tokens,
                seconds=self.progress.seconds + step.seconds,
            )
            self._record({"step": step.number, **asdict(step)})
            yield step
            if self._evaluation_is_due:
                yield self._evaluate()
                if self.out_of_patience:
                    return

    def finish(self) -> EvalResult:
        """Takes the remaining steps, evaluates the best weights and writes the bundle."""
        for _ in self.events():
            pass
        best = self.progress.best_step
        # The bundle has the best weights, which need not be the last ones.
        if best is not None and best != self.progress.step:
            load_checkpoint(checkpoint_path(self.directory / CHECKPOINTS, best), self.trainer)
        with self._averaged_weights():
            result = self.data_module.evaluate(self.model)
            self._record({"step": self.progress.step, "summary": self._summary(result)})
            Bundle(self.model.eval(), self.tokenizer).save(
                self.directory,
                write_extras=lambda staging: self._write_report(staging, result),
                may_replace=(RECIPE, METRICS, TOKENIZER, *TOKENIZER_COMPANIONS),
                carry_over=(CHECKPOINTS,),
            )
        return result

    def save(self) -> Path:
        """Writes a checkpoint of the run as it is now."""
        return save_checkpoint(self.directory / CHECKPOINTS, self.trainer, self.progress)

    def resume(self, warn: Callable[[str], None]) -> None:
        """Continues from the newest undamaged checkpoint, and forgets what was logged after it."""
        checkpoints = self.directory / CHECKPOINTS
        if any(checkpoints.glob("step-*")):  # else it was stopped before the first one
            self.progress = load_newest(checkpoints, self.trainer, warn)
        path = self.directory / METRICS
        lines: list[str] = []
        if path.exists():
            # After the last line break may be a line that was cut short.
            for line in path.read_text("utf-8").split("\n")[:-1]:
                fields = upgrade(METRICS, json.loads(line))
                if fields["step"] <= self.progress.step and "summary" not in fields:
                    lines.append(json.dumps(fields))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    @property
    def out_of_patience(self) -> bool:
        """Whether the validation metric has not improved for `patience` evaluations."""
        best = self.progress.best_step
        if best is None:
            return False
        evaluations = (self.progress.step - best) // self.recipe.evaluate_every
        return 0 < self.recipe.patience <= evaluations

    # Time

    def seconds_per_step(self, seconds: float = 3.0) -> float:
        return self.measure_speed(seconds)[0]

    def measure_speed(self, seconds: float) -> tuple[float, float]:
        """Seconds per step and tokens per second, measured on a copy that is thrown away.

        The time between two steps counts too; the first steps, which warm up, do not.
        """
        # The copy keeps the weights, and the saved state the dropout, as if nothing had happened.
        trial = self._make_trainer(copy.deepcopy(self.model), 10**9)
        rng_state = torch.get_rng_state()
        start = time.perf_counter()
        tokens = 0
        for step in trial.steps(self._batches(0)):
            if step.number <= WARM_UP_STEPS:
                start = time.perf_counter()
                continue
            tokens += step.tokens
            if time.perf_counter() - start > seconds:
                break
        torch.set_rng_state(rng_state)
        elapsed = time.perf_counter() - start
        return elapsed / (step.number - WARM_UP_STEPS), tokens / elapsed

    def seconds_per_evaluation(self) -> float:
        start = time.perf_counter()
        self.data_module.warm_up(self.model)
        return time.perf_counter() - start

    def fit_to_minutes(self, minutes: float) -> float:
        """Plans as many steps as fit, by a short measurement; returns the seconds per step.

        Only before the first step. Where evaluations take long, there are fewer of them.
        """
        per_evaluation = self.seconds_per_evaluation()
        budget = minutes * 60 * MAX_EVALUATION_FRACTION
        affordable = max(1, int(budget / per_evaluation) - FINAL_EVALUATION_COST)
        evaluations = min(EVALUATIONS_PER_RUN, affordable)
        per_step = self.seconds_per_step()
        evaluating = min(budget, (evaluations + FINAL_EVALUATION_COST) * per_evaluation)
        stepping = minutes * 60 - evaluating
        steps = max(MIN_TIMED_STEPS, int(stepping / per_step * SAFETY_MARGIN))
        every = self.recipe.evaluate_every
        if every == evaluation_interval(self.recipe.steps):  # the default, not a setting
            every = math.ceil(steps / evaluations)
        changes = {"steps": steps, "evaluate_every": every}
        self.recipe = self.recipe.model_copy(update=changes)
        self.trainer.total = steps
        return per_step

    # The loop's parts

    def _make_trainer(self, model: Model, steps: int) -> Trainer:
        recipe = self.recipe
        ema = EMA(model, recipe.ema) if recipe.ema else None
        optimizers = recipe.optimizer.build(model)
        if recipe.compile:
            model = compile_for_training(model, optimizers)
        if recipe.activation_checkpointing:
            checkpoint_activations(model)
        return Trainer(
            model, self.task.loss, optimizers, recipe.schedule, steps, recipe.grad_clip, ema
        )

    def _batches(self, step: int) -> Iterator[Sequence[Batch]]:
        """Micro-batches of each step after `step`; a pure function of the recipe and the step."""
        epoch = 0
        while True:
            batches = self.data_module.batch_indices(epoch)
            for number, indices in enumerate(batches[step:], start=step):
                rng = np.random.default_rng((self.recipe.seed, epoch, number))
                micro_batches = np.array_split(indices, min(self.recipe.accumulate, len(indices)))
                yield [
                    self.data_module.batch(part, rng, epoch).to(self.device)
                    for part in micro_batches
                ]
            epoch += 1
            step = max(0, step - len(batches))

    @property
    def _evaluation_is_due(self) -> bool:
        progress = self.progress
        at_interval = progress.step % self.recipe.evaluate_every == 0
        at_end = progress.step == self.recipe.steps
        return progress.step > progress.last_evaluation and (at_interval or at_end)

    def _evaluate(self) -> Evaluation:
        with self._averaged_weights():
            scores = self.data_module.validate(self.model)
            sample = self.data_module.sample(self.model)
        step = self.progress.step
        metric = self.data_module.metric
        value = scores[metric.name]
        best = metric.better(value, self.progress.best)
        self.progress = replace(self.progress, last_evaluation=step)
        if best:
            self.progress = replace(self.progress, best=value, best_step=step)
        tokens = self.progress.tokens
        # Before the checkpoint: a process killed in between would lose it.
        self._record({"step": step, "validation": scores, "best": best, "tokens_seen": tokens})
        self.save()
        return Evaluation(step, scores, value, best, sample)

    def _averaged_weights(self) -> AbstractContextManager[None]:
        if self.trainer.ema is None:
            return nullcontext()
        return self.trainer.ema.applied_to(self.model)

    # What it writes

    def _record(self, line: dict[str, object]) -> None:
        path = self.directory / METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_without_nan(line), allow_nan=False) + "\n")
        except OSError as error:
            raise TrainingError(f"cannot write {path}: {error.strerror or error}") from error

    def _summary(self, result: EvalResult) -> dict[str, object]:
        return {
            "steps": self.progress.step,
            "best_step": self.progress.best_step,
            "tokens_seen": self.progress.tokens,
            "seconds": self.progress.seconds,
            "validation": dict(result.scores),
            "baseline": dict(result.baseline),
        }

    def _write_report(self, staging: Path, result: EvalResult) -> None:
        """Recipe and metrics for machines, a report for people."""
        for name in (RECIPE, METRICS):
            shutil.copyfile(self.directory / name, staging / name)
        lines = (staging / METRICS).read_text("utf-8").split("\n")[:-1]
        metric = self.data_module.metric
        baseline = (result.baseline_name, result.baseline) if result.baseline else None
        report = TrainingReport(
            title=self.task.title,
            job=self.task.kind,
            metric=metric.name,
            higher_is_better=metric.higher_is_better,
            log=[json.loads(line) for line in lines],
            data=self.data_module.facts,
            remarks=list(dict.fromkeys((*self.data_module.remarks, *result.remarks))),
            scores=result.scores,
            baseline=baseline,
            labels=result.labels,
            confusion=result.confusion,
            samples=result.samples,
            usage=tuple(command.format(self.directory) for command in self.task.usage),
            recipe=self.recipe.toml(),
        )
        write_report(report, staging)


def begin(run: Run) -> None:
    """Makes the directory, with all that another process needs to resume the run."""
    path = run.directory
    try:
        path.mkdir(parents=True, exist_ok=True)
        run.tokenizer.save(path / TOKENIZER)
        (path / RECIPE).write_text(run.recipe.toml(), encoding="utf-8")  # last: all is there
    except OSError as error:
        raise TrainingError(write_error_message(path, error)) from error


def reopen(directory: Path, device: torch.device, job: str | None = None) -> Run:
    """The run in that directory, before `resume`; raises if it is for another job."""
    recipe = read_recipe((directory / RECIPE).read_text("utf-8"))
    if job not in (None, recipe.task.kind):
        raise TrainingError(f"the run in {directory} is for {recipe.task.kind}, not for {job}")
    tokenizer = Tokenizer.load(directory / TOKENIZER)
    return Run(prepare_again(recipe, tokenizer), directory, device)


def read_summary(metrics: Path) -> dict[str, Any]:
    """The summary in the last line of a finished run's metrics.jsonl; empty if there is none."""
    if not metrics.is_file():
        return {}
    lines = metrics.read_text("utf-8").split("\n")
    last = lines[-2] if len(lines) > 1 else lines[0]
    try:
        summary = json.loads(last).get("summary", {})
    except (ValueError, AttributeError, RecursionError):
        raise TrainingError(f"{metrics} does not end with a line of JSON; it is damaged") from None
    if not isinstance(summary, dict):
        return {}
    return upgrade(METRICS, summary)


def compile_for_training(model: Model, optimizers: list[torch.optim.Optimizer]) -> Model:
    """The same weights in a model of fused kernels; Muon gets its kernel too.

    Off the CPU, or in another precision than float32, the model's layers are compiled by torch.
    """
    if can_optimize(model):
        fuse_muon(optimizers)
        return fuse(model)
    for module in model.modules():
        if isinstance(module, Layers):
            module.compile()
    return model


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity; they are written as strings, as in "nan"."""
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
