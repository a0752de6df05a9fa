"""One training run in its directory, for any job: it can be stopped anywhere and goes on."""

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

from qkv.bundle import Bundle
from qkv.bundle.bundle import TOKENIZER
from qkv.engine.optimized import can_optimize
from qkv.errors import TrainingError
from qkv.files import write_error_message
from qkv.model import Layers, Model
from qkv.report import TrainingReport, write_report
from qkv.tasks.token_tasks import Batch
from qkv.text import Tokenizer
from qkv.text.tokenizer import TOKENIZER_COMPANIONS
from qkv.training.checkpoint import Progress, load_checkpoint, load_newest, save_checkpoint
from qkv.training.fused_model import fuse, fuse_muon
from qkv.training.jobs.base import DataModule, EvalResult, Job
from qkv.training.plan import Prepared, prepare_again
from qkv.training.recipe import EVALUATIONS, Recipe, evaluations, read_recipe
from qkv.training.trainer import EMA, Step, Trainer, checkpoint_activations

# FOLDED train/story: What a finished run tells people: the facts of its report.
# FOLDED train/open: A run in its directory: begun, so that it can be gone on with, or opened
#   again.

USE = {
    "language": ("qkv evaluate {0} other.txt",),
    "masked": ("qkv evaluate {0} other.txt", "qkv train classify texts.csv --from {0} -o labels"),
    "classify": ("qkv evaluate {0} test.csv",),
    "translate": ("qkv evaluate {0} test.tsv",),
    "embed": ("qkv evaluate {0} test.csv",),
}


def story(
    place: Path,
    job: Job[Any],
    recipe: Recipe,
    data_module: DataModule,
    judged: EvalResult,
    lines: Sequence[str],
) -> TrainingReport:
    """All of it; `lines` are those of metrics.jsonl."""
    return TrainingReport(
        title=job.title,
        job=job.name,
        metric=data_module.metric.name,
        higher_is_better=data_module.metric.higher_is_better,
        log=[json.loads(line) for line in lines],
        data=data_module.facts,
        remarks=data_module.remarks,
        scores=judged.scores,
        baseline=(judged.baseline_is, judged.baseline) if judged.baseline else None,
        labels=judged.labels,
        confusion=judged.confusion,
        samples=judged.samples,
        usage=tuple(line.format(place) for line in USE[job.name]),
        recipe=recipe.toml(),
    )


WARMING = 3  # steps

LOOKING = 0.3  # of a time budget: planned for the held-out part, at most

LAST = 2  # the last look, which the report shows, takes as long as so many others

RECIPE, METRICS, CHECKPOINTS = "recipe.toml", "metrics.jsonl", "checkpoints"


@dataclass(frozen=True)
class Evaluation:
    """The metrics on the held-out part after so many steps; `value` is the watched one."""

    number: int
    scores: dict[str, float]
    value: float
    best: bool
    sample: str


Event = Step | Evaluation


class Run:
    """A recipe, its data and a model; `events()` goes through it, and can go on after a stop."""

    def __init__(self, prepared: Prepared, directory: Path, device: torch.device) -> None:
        self.job, self.recipe, self.data_module = (
            prepared.job,
            prepared.recipe,
            prepared.data_module,
        )
        self.tokenizer, self.directory, self.device = prepared.tokenizer, directory, device
        recipe, model = self.recipe, prepared.model(device)
        self.model = model
        torch.manual_seed(recipe.seed)
        self.data_module.begin(model)
        self.trainer = self._trainer(model, recipe.steps)
        self.progress = Progress()

    def resume(self, say: Callable[[str], None]) -> None:
        """Go on from the newest healthy checkpoint, and forget what was measured after it."""
        checkpoints = self.directory / CHECKPOINTS
        if any(checkpoints.glob("step-*")):  # else it was stopped before the first: from the start
            self.progress = load_newest(checkpoints, self.trainer, say)
        path = self.directory / METRICS
        lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []  # whole ones
        told = ((line, json.loads(line)) for line in lines)
        kept = [
            line
            for line, facts in told
            if facts["step"] <= self.progress.step and "summary" not in facts
        ]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def events(self) -> Iterator[Event]:
        """Steps, and evaluations with a checkpoint after each."""
        if self._due:  # it was stopped between a step and its evaluation
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
            if self._due:
                yield self._evaluate()
                if self.out_of_patience:
                    return

    @property
    def _due(self) -> bool:
        """Whether the held-out part is still to be looked at after this step."""
        p, every = self.progress, self.recipe.evaluate_every
        return p.step > p.last_evaluation and (p.step % every == 0 or p.step == self.recipe.steps)

    @property
    def out_of_patience(self) -> bool:
        """Whether it has not become better for too long."""
        best, recipe = self.progress.best_step, self.recipe
        waited = 0 if best is None else (self.progress.step - best) // recipe.evaluate_every
        return 0 < recipe.patience <= waited

    def save(self) -> Path:
        """A checkpoint of where it is now."""
        return save_checkpoint(self.directory / CHECKPOINTS, self.trainer, self.progress)

    def seconds_a_step(self, seconds: float = 3.0) -> float:
        """What a step takes here."""
        return self.speed(seconds)[0]

    def speed(self, seconds: float) -> tuple[float, float]:
        """Seconds a step and tokens a second, measured for a while on a copy thrown away.

        What is done between two steps counts too; the first steps, which warm up, do not.
        """
        trial = self._trainer(copy.deepcopy(self.model), 10**9)
        state = torch.get_rng_state()
        start, tokens = time.perf_counter(), 0
        for step in trial.steps(self._batches(0)):
            if step.number <= WARMING:
                start = time.perf_counter()
                continue
            tokens += step.tokens
            if time.perf_counter() - start > seconds:
                break
        torch.set_rng_state(state)
        spent = time.perf_counter() - start
        return spent / (step.number - WARMING), tokens / spent

    def seconds_an_evaluation(self) -> float:
        """What looking at the held-out part takes."""
        start = time.perf_counter()
        self.data_module.warm_up(self.model)
        return time.perf_counter() - start

    def fit_to_minutes(self, minutes: float) -> float:
        """As many steps as fit, by a short measurement; the seconds that one of them takes.

        Only before the first step. Where looking at the held-out part takes long, it is done less
        often.
        """
        looking, room = self.seconds_an_evaluation(), minutes * 60 * LOOKING
        looks = min(EVALUATIONS, max(1, int(room / looking) - LAST))
        seconds = self.seconds_a_step()
        left = minutes * 60 - min(room, (looks + LAST) * looking)
        steps, every = max(10, int(left / seconds * 0.95)), self.recipe.evaluate_every
        if every == evaluations(self.recipe.steps):  # nobody asked for another
            every = math.ceil(steps / looks)
        changes = {"steps": steps, "evaluate_every": every}
        self.recipe = self.recipe.model_copy(update=changes)
        self.trainer.total = steps
        return seconds

    def finish(self) -> tuple[Path, EvalResult]:
        """The run's directory becomes a bundle of the best weights, with all that led to them."""
        best = self.progress.best_step
        if best is not None and best != self.progress.step:
            load_checkpoint(self.directory / CHECKPOINTS / f"step-{best:08d}", self.trainer)
        with self._averaged():
            judged = self.data_module.evaluate(self.model)
            self._record({"step": self.progress.step, "summary": self._summary(judged)})
            Bundle(self.model.eval(), self.tokenizer).save(
                self.directory,
                write_extras=lambda staging: self._write_beside(staging, judged),
                may_replace=(RECIPE, METRICS, TOKENIZER, *TOKENIZER_COMPANIONS),
                carry_over=(CHECKPOINTS,),
            )
        return self.directory, judged

    def _write_beside(self, staging: Path, judged: EvalResult) -> None:
        """The way to the model and how good it is, for machines and for people."""
        for name in (RECIPE, METRICS):
            shutil.copyfile(self.directory / name, staging / name)
        lines = (staging / METRICS).read_text("utf-8").split("\n")[:-1]
        told = story(self.directory, self.job, self.recipe, self.data_module, judged, lines)
        write_report(told, staging)

    def _summary(self, judged: EvalResult) -> dict[str, object]:
        p = self.progress
        return {
            "steps": p.step,
            "best_step": p.best_step,
            "tokens_seen": p.tokens,
            "seconds": p.seconds,
            "validation": dict(judged.scores),
            "baseline": dict(judged.baseline),
        }

    def _trainer(self, model: Model, steps: int) -> Trainer:
        r = self.recipe
        ema = EMA(model, r.ema) if r.ema else None
        optimizers = r.optimizer.build(model)
        learner = quickened(model, optimizers) if r.compile else model
        if r.activation_checkpointing:
            checkpoint_activations(learner)
        return Trainer(learner, r.task.loss, optimizers, r.schedule, steps, r.grad_clip, ema)

    def _averaged(self) -> AbstractContextManager[None]:
        ema = self.trainer.ema
        return nullcontext() if ema is None else ema.inside(self.model)

    def _batches(self, done: int) -> Iterator[Sequence[Batch]]:
        """From the step after `done` on; a pure function of the recipe and the step."""
        r, epoch = self.recipe, 0
        while True:
            order = self.data_module.order(epoch)
            for number, examples in enumerate(order[done:], start=done):
                draws = np.random.default_rng((r.seed, epoch, number))
                parts = np.array_split(examples, min(r.accumulate, len(examples)))
                yield [self.data_module.batch(part, draws, epoch).to(self.device) for part in parts]
            epoch, done = epoch + 1, max(0, done - len(order))

    def _evaluate(self) -> Evaluation:
        with self._averaged():
            scores, sample = (
                self.data_module.validate(self.model),
                self.data_module.sample(self.model),
            )
        done, metric = self.progress.step, self.data_module.metric
        value = scores[metric.name]
        best = metric.better(value, self.progress.best)
        self.progress = replace(self.progress, last_evaluation=done)
        if best:
            self.progress = replace(self.progress, best=value, best_step=done)
        line = {"validation": scores, "best": best, "tokens_seen": self.progress.tokens}
        self._record({"step": done, **line})  # before the checkpoint, or a kill between loses it
        self.save()
        return Evaluation(done, scores, value, best, sample)

    def _record(self, line: dict[str, object]) -> None:
        path = self.directory / METRICS
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(_without_nan(line), allow_nan=False) + "\n")
        except OSError as error:
            raise TrainingError(f"cannot write {path}: {error.strerror or error}") from error


def last_summary(metrics: Path) -> dict[str, Any]:
    """What the last line of a finished run's metrics says; nothing if there is none."""
    if not metrics.is_file():
        return {}
    lines = metrics.read_text("utf-8").split("\n")
    try:
        summary = json.loads(lines[-2] if len(lines) > 1 else lines[0]).get("summary", {})
    except (ValueError, AttributeError, RecursionError):
        raise TrainingError(f"{metrics} does not end with a line of JSON; it is damaged") from None
    return dict(summary) if isinstance(summary, dict) else {}


def quickened(model: Model, optimizers: list[torch.optim.Optimizer]) -> Model:
    """What learns in the model's place, and teaches it: the same weights in a quicker twin.

    The optimizers become quicker too. Off the CPU, or in another precision than float32, it is the
    model itself, whose layers torch compiles.
    """
    if can_optimize(model):
        fuse_muon(optimizers)
        return fuse(model)
    for module in model.modules():
        if isinstance(module, Layers):
            module.compile()
    return model


def _without_nan(value: Any) -> Any:
    """JSON has no word for what is not finite; it is written as text, as in "nan"."""
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def begin(run: Run) -> None:
    """Make its directory, with all that another process needs to go on with it."""
    place = run.directory
    try:
        place.mkdir(parents=True, exist_ok=True)
        run.tokenizer.save(place / TOKENIZER)
        (place / RECIPE).write_text(run.recipe.toml(), encoding="utf-8")  # last: all is there
    except OSError as error:
        raise TrainingError(write_error_message(place, error)) from error


def reopen(place: Path, device: torch.device, job: str | None = None) -> Run:
    """The run that was begun there, before it is resumed; for that job, if one is named."""
    recipe = read_recipe((place / RECIPE).read_text("utf-8"))
    if job not in (None, recipe.task.kind):
        raise TrainingError(f"the run in {place} is for {recipe.task.kind}, not for {job}")
    return Run(prepare_again(recipe, Tokenizer.load(place / TOKENIZER)), place, device)
