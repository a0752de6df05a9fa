"""One training run in its directory: a stream of events that can be stopped and resumed anywhere.

    for event in qkv.train("classify", "reviews.csv", output="runs/reviews"):
        print(event)  # a Step, an Evaluation, and at the end a Finished

A model is there from the first save on: at every best evaluation the weights are written as a
bundle, which `qkv.load` opens. The directory becomes a bundle itself when the run is finished.
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

import numpy as np
import torch

from qkv.bundle import BEST, Bundle
from qkv.model import Model
from qkv.report import TrainingReport, write_report
from qkv.training.checkpoint import (
    PROGRESS,
    Progress,
    checkpoint_path,
    load_checkpoint,
    load_newest,
    save_checkpoint,
)
from qkv.training.fused_model import compile_for_training
from qkv.training.prepare import Prepared
from qkv.training.recipe import evaluation_interval
from qkv.training.run_directory import (
    CHECKPOINTS,
    METRICS,
    RECIPE,
    RUN_FILES,
    append_metrics,
    delete_leftovers,
    lock,
    read_log,
    read_scores,
    write_log,
    write_recipe,
)
from qkv.training.tasks import Batch, EvalResult
from qkv.training.time_limit import (
    OutOfTimeError,
    StepTimer,
    TimeLimit,
    evaluation_limit,
    time_steps,
)
from qkv.training.trainer import EMA, Step, Trainer, checkpoint_activations

MAX_UNSAVED_SECONDS = 120.0  # of training that a killed process loses


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
        self.note: Callable[[str], None] = self.notes.append  # called while it trains
        self.should_stop: Callable[[], bool] = lambda: False  # asked during an evaluation
        # After the weights: dropout starts from the seed, however they were initialized.
        torch.manual_seed(self.recipe.seed)
        self.data_module.prepare_model(self.model)
        self.trainer = self._make_trainer(self.model, self.recipe.steps)
        self.progress = Progress()
        self.saved: Progress | None = None  # what the newest checkpoint holds
        self.finished = False
        self.limit: TimeLimit | None = None
        self._save_time = time.perf_counter()
        self._timer = StepTimer()

    def __iter__(self) -> Iterator[Event | Finished]:
        """Steps and evaluations to the end of the run, then one Finished."""
        yield from self.events()
        yield Finished(self.directory, self.finish())

    def events(self) -> Iterator[Event]:
        """The remaining steps, and evaluations with a checkpoint after each."""
        if self.finished:
            return
        with lock(self.directory):
            yield from self._train()

    def _train(self) -> Iterator[Event]:
        if self._evaluation_is_due:  # it was stopped between a step and its evaluation
            yield from self._evaluate()
        if self.out_of_patience:
            return
        self._save_time = time.perf_counter()
        self._timer = StepTimer()
        for step in self.trainer.steps(self._batches(self.trainer.step)):
            self.progress = replace(
                self.progress,
                step=step.number,
                tokens=self.progress.tokens + step.tokens,
                seconds=self.progress.seconds + step.seconds,
            )
            append_metrics(self.directory, {"step": step.number, **asdict(step)})
            self._timer.count_step()
            self._keep_to_limit()
            yield step
            if self._evaluation_is_due:
                yield from self._evaluate()
                if self.out_of_patience:
                    return
            elif time.perf_counter() - self._save_time > MAX_UNSAVED_SECONDS:
                self.save()

    def finish(self) -> EvalResult:
        """Takes the remaining steps, evaluates the best weights and writes the bundle."""
        for _ in self.events():
            pass
        with lock(self.directory):
            return self._conclude()

    def _conclude(self) -> EvalResult:
        self.save()
        best = self.progress.best_step
        # The bundle has the best weights, which need not be the last ones.
        if best is not None and best != self.progress.step:
            load_checkpoint(checkpoint_path(self.directory / CHECKPOINTS, best), self.trainer)
        self.finished = True
        with self._averaged_weights():
            result = self._final_evaluation()
            alignment = self.data_module.alignment(self.model)
            Bundle(self.model.eval(), self.tokenizer, alignment=alignment).save(
                self.directory,
                write_extras=lambda staging: self._write_report(staging, result),
                may_replace=RUN_FILES,
                carry_over=(CHECKPOINTS,),
            )
        shutil.rmtree(self.directory / BEST, ignore_errors=True)  # now a second copy
        return result

    def stop_here(self) -> None:
        """Leaves out the remaining steps: `finish()` evaluates and reports what there is."""
        self.trainer.total = self.progress.step

    def save(self) -> Path:
        """Writes a checkpoint of the run as it is now.

        Before the first evaluation its weights are the best so far, and become the bundle.
        """
        if self.progress != self.saved:
            if self.progress.best_step is None and self.progress.step > 0:
                with self._averaged_weights():
                    self._save_best()
            save_checkpoint(self.directory / CHECKPOINTS, self.trainer, self.progress)
            self.saved = self.progress
        self._save_time = time.perf_counter()
        return checkpoint_path(self.directory / CHECKPOINTS, self.progress.step)

    def resume(self, warn: Callable[[str], None]) -> None:
        """Continues from the newest undamaged checkpoint, and forgets what was logged after it."""
        delete_leftovers(self.directory)
        checkpoints = self.directory / CHECKPOINTS
        if any(checkpoints.glob("step-*")):  # else it was stopped before the first one
            self.progress = load_newest(checkpoints, self.trainer, warn)
            self.saved = self.progress
        path = self.directory / METRICS
        lines = [line for line in read_log(path) if line["step"] <= self.progress.step]
        write_log(path, lines)

    def change_length(self, steps: int, evaluate_every: int | None = None) -> None:
        """From now on the run has so many steps, and the learning rate of a run of that length."""
        if evaluate_every is None:
            evaluate_every = self.recipe.evaluate_every
            if evaluate_every == evaluation_interval(self.recipe.steps):  # not a setting
                evaluate_every = evaluation_interval(steps)
        changes = {"steps": steps, "evaluate_every": evaluate_every}
        self.recipe = self.recipe.model_copy(update=changes)
        self.trainer.total = steps

    @property
    def out_of_patience(self) -> bool:
        """Whether the validation metric has not improved for `patience` evaluations."""
        best = self.progress.best_step
        if best is None:
            return False
        evaluations = (self.progress.step - best) // self.recipe.evaluate_every
        return 0 < self.recipe.patience <= evaluations

    # Time

    def measure_speed(self, seconds: float) -> tuple[float, float]:
        """Seconds per step and tokens per second, measured on a copy that is thrown away.

        The time between two steps counts too; the first steps, which warm up, do not.
        """
        # The copy keeps the weights, and the saved state the dropout, as if nothing had happened.
        trial = self._make_trainer(copy.deepcopy(self.model), 10**9)
        rng_state = torch.get_rng_state()
        result = time_steps(trial.steps(self._batches(0)), seconds)
        torch.set_rng_state(rng_state)
        return result

    def seconds_per_evaluation(self, seconds: float | None = None) -> float:
        """How long an evaluation takes; it is not measured for longer than `seconds`."""
        start = time.perf_counter()
        try:
            with evaluation_limit(self.data_module, seconds, self.should_stop):
                self.data_module.warm_up(self.model)
        except OutOfTimeError:
            pass
        return time.perf_counter() - start

    def fit_to_minutes(self, minutes: float, start: float | None = None) -> float:
        """Plans as many steps as fit, by a short measurement; returns the seconds per step.

        The minutes are a limit for all that is left, the report included; they count from `start`,
        a value of `time.perf_counter`, or from now. Where evaluations take long, there are fewer.
        """
        limit = TimeLimit(minutes, time.perf_counter() if start is None else start)
        limit.per_evaluation = self.seconds_per_evaluation(limit.measuring_seconds)
        per_step, _ = self.measure_speed(min(3.0, limit.measuring_seconds))
        evaluations = limit.affordable_evaluations()
        steps = limit.plan_steps(self.progress.step, per_step, evaluations)
        every = self.recipe.evaluate_every
        if every == evaluation_interval(self.recipe.steps):  # the default, not a setting
            every = math.ceil((steps - self.progress.step) / evaluations)
        self.limit = limit
        self.change_length(steps, every)
        return per_step

    def _keep_to_limit(self) -> None:
        """Changes the number of steps if the time is not enough for them, or is again."""
        if self.limit is None:
            return
        recipe = self.recipe
        steps = self.limit.replan_steps(
            self.progress.step, recipe.steps, recipe.evaluate_every, self._timer
        )
        if steps == recipe.steps:
            return
        self.change_length(steps, recipe.evaluate_every)
        write_recipe(self.directory, self.recipe)
        if self.limit.is_much_slower(steps):
            self.note(
                f"slower than measured at the start: {steps:,} instead of "
                f"{self.limit.planned_steps:,} steps, to end within {self.limit.minutes:g} minutes"
            )

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
        recipe = self.recipe
        if progress.step <= progress.last_evaluation:
            return False
        at_interval = progress.step % recipe.evaluate_every == 0
        at_end = progress.step == recipe.steps
        if self.limit is not None and recipe.steps - progress.step < recipe.evaluate_every // 2:
            at_interval = False  # the time is better spent on the one at the end
        return at_interval or at_end

    def _evaluate(self) -> Iterator[Evaluation]:
        """The evaluation that is due; none if it is given up, because it takes too long."""
        step = self.progress.step
        metric = self.data_module.metric
        start = time.perf_counter()
        seconds = None
        if self.limit is not None:
            seconds = self.limit.seconds_for_evaluation(is_last=step >= self.recipe.steps)
        evaluation: Evaluation | None = None
        with self._averaged_weights():
            try:
                with evaluation_limit(self.data_module, seconds, self.should_stop):
                    scores = self.data_module.validate(self.model)
                    value = scores[metric.name]
                    best = metric.better(value, self.progress.best)
                    evaluation = Evaluation(step, scores, value, best, sample="")
                    sample = self.data_module.sample(self.model)
                    evaluation = replace(evaluation, sample=sample)
            except OutOfTimeError:
                if evaluation is None:  # else only the sample is missing
                    self.note(f"step {step:,}: the evaluation took too long and was given up")
            self.progress = replace(self.progress, last_evaluation=step)
            if evaluation is not None:
                # Before the checkpoint: a process killed in between would lose them.
                self._record_evaluation(evaluation)
        self.save()
        self._plan_evaluations(time.perf_counter() - start)
        if evaluation is not None:
            yield evaluation

    def _record_evaluation(self, evaluation: Evaluation) -> None:
        """Into the metrics; the best so far also as a bundle."""
        step = evaluation.number
        best = evaluation.best
        if best:
            self.progress = replace(self.progress, best=evaluation.value, best_step=step)
        tokens = self.progress.tokens
        scores = evaluation.scores
        append_metrics(
            self.directory,
            {"step": step, "validation": scores, "best": best, "tokens_seen": tokens},
        )
        if best:
            self._save_best()

    def _plan_evaluations(self, seconds: float) -> None:
        """After one of so many seconds: fewer, if the time limit does not allow as many."""
        self._timer.leave_out(seconds)
        remaining = self.recipe.steps - self.progress.step
        if self.limit is None or remaining <= 0:
            return
        self.limit.per_evaluation = seconds
        every = math.ceil(remaining / self.limit.affordable_evaluations())
        if every > self.recipe.evaluate_every:
            self.change_length(self.recipe.steps, every)
            write_recipe(self.directory, self.recipe)

    def _averaged_weights(self) -> AbstractContextManager[None]:
        if self.trainer.ema is None:
            return nullcontext()
        return self.trainer.ema.applied_to(self.model)

    def _final_evaluation(self) -> EvalResult:
        """All validation examples with a baseline; if the time is up, the best evaluation."""
        seconds = None
        if self.limit is not None:
            seconds = self.limit.seconds_for_final_evaluation()
        try:
            with evaluation_limit(self.data_module, seconds, self.should_stop):
                return self.data_module.evaluate(self.model)
        except OutOfTimeError:
            remark = "there was no time for the final evaluation"
        scores = read_scores(self.directory / METRICS, self.progress.best_step)
        if scores:
            remark += "; the scores are those of the best one during training"
        return EvalResult(scores=scores, examples=0, remarks=(remark,), complete=False)

    # What it writes

    def _save_best(self) -> None:
        """Writes the model's weights as the bundle of the best so far."""

        def write_extras(staging: Path) -> None:
            (staging / RECIPE).write_text(self.recipe.toml(), encoding="utf-8")
            (staging / PROGRESS).write_text(json.dumps(asdict(self.progress)), encoding="utf-8")

        Bundle(self.model, self.tokenizer).save(self.directory / BEST, write_extras)

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
        log = read_log(self.directory / METRICS)
        log.append({"step": self.progress.step, "summary": self._summary(result)})
        write_log(staging / METRICS, log)
        (staging / RECIPE).write_text(self.recipe.toml(), encoding="utf-8")
        metric = self.data_module.metric
        baseline = (result.baseline_name, result.baseline) if result.baseline else None
        report = TrainingReport(
            title=self.task.title,
            job=self.task.kind,
            metric=metric.name,
            higher_is_better=metric.higher_is_better,
            log=log,
            data=self.data_module.facts,
            remarks=list(dict.fromkeys((*self.data_module.remarks, *result.remarks))),
            scores=result.scores,
            baseline=baseline,
            labels=result.labels,
            confusion=result.confusion,
            samples=result.samples,
            usage=self.task.commands(self.directory),
            intervals=result.intervals,
            recipe=self.recipe.toml(),
        )
        write_report(report, staging)
