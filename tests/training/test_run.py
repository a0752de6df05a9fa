"""A run is a function of its recipe: stopped anywhere and resumed, it ends with the same bits."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.training.tiny_runs import (
    CPU,
    JOBS,
    args_for,
    data_for,
    fingerprint,
    labelled,
    start,
    whole,
    written,
)

from qkv.bundle import Bundle
from qkv.errors import QkvError, TrainingError
from qkv.text import Tokenizer
from qkv.training.checkpoint import load_newest
from qkv.training.prepare import TrainArgs, prepare_again
from qkv.training.recipe import read_recipe
from qkv.training.run import Evaluation, Run
from qkv.training.run_directory import CHECKPOINTS, METRICS, RECIPE, append_metrics

STEPS, EVERY = 9, 4
CASES = [*((job, 0.0) for job in JOBS), ("classify", 0.4), ("translate", 0.4)]


def args(job: str, folder: Path, bpe_dropout: float = 0.0) -> TrainArgs:
    """With dropout, a running mean and steps in two parts: whatever a resume has to bring back.

    With bpe_dropout, an epoch is over after a few steps: the next one has other tokens.
    """
    settings = {"ema": 0.9, "accumulate": 2, "evaluate_every": EVERY}
    settings |= {"tokens": {"bpe_dropout": bpe_dropout}} if bpe_dropout else {}
    args = args_for(job, data_for(job, folder / "data"), STEPS, settings=settings)
    if bpe_dropout:
        return replace(args, batch=2000)
    return replace(args, batch=400) if job == "embed" else args  # a text needs others beside it


def begun(folder: Path, job: str = "language", bpe_dropout: float = 0.0) -> Run:
    return start(folder / "run", args(job, folder, bpe_dropout))


def again(folder: Path, say=print) -> Run:  # type: ignore[no-untyped-def]
    """The run in that folder as another process would take it up."""
    place = folder / "run"
    recipe = read_recipe((place / RECIPE).read_text("utf-8"))
    prepared = prepare_again(recipe, Tokenizer.load(place / "tokenizer.json"))
    run = Run(prepared, place, CPU)
    run.resume(say)
    return run


def to_the_end(run: Run) -> Run:
    for _ in run.events():
        pass
    return run


def metrics(place: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (place / METRICS).read_text().split("\n")[:-1]]


def without_times(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: v for name, v in line.items() if name != "seconds"} for line in lines]


class Whole:
    """Runs that nobody interrupts, one a job: their bits, and what they measured."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bits = folder, dict[Path, str]()

    def of(self, job: str, bpe_dropout: float = 0.0) -> str:
        place = self._place(job, bpe_dropout)
        if place not in self.bits:
            self.bits[place] = fingerprint(to_the_end(begun(place, job, bpe_dropout)))
        return self.bits[place]

    def metrics(self, job: str, bpe_dropout: float = 0.0) -> list[dict[str, object]]:
        self.of(job, bpe_dropout)
        return without_times(metrics(self._place(job, bpe_dropout) / "run"))

    def _place(self, job: str, bpe_dropout: float) -> Path:
        return self.folder / f"{job}-{bpe_dropout}"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 4, 7, 8])
@pytest.mark.parametrize(("job", "bpe_dropout"), CASES)
def test_stopped_at_any_step_and_resumed_it_ends_with_the_same_bits(
    job: str, bpe_dropout: float, stop: int, tmp_path: Path, uninterrupted: Whole
) -> None:
    first = begun(tmp_path, job, bpe_dropout)
    for event in first.events():
        if not isinstance(event, Evaluation) and event.number == stop:
            break
    first.save()
    torch.rand(7)  # whatever happened in between
    second = again(tmp_path)
    assert second.progress.step == stop
    assert fingerprint(to_the_end(second)) == uninterrupted.of(job, bpe_dropout)
    assert without_times(metrics(tmp_path / "run")) == uninterrupted.metrics(job, bpe_dropout)


def test_stopped_again_and_again_it_ends_with_the_same_bits(
    tmp_path: Path, uninterrupted: Whole
) -> None:
    run = begun(tmp_path)
    while run.progress.step < STEPS:
        for event in run.events():
            if not isinstance(event, Evaluation):
                break
        run.save()
        run = again(tmp_path)
    assert fingerprint(to_the_end(run)) == uninterrupted.of("language")


def test_stopped_before_the_first_checkpoint_it_begins_again(
    tmp_path: Path, uninterrupted: Whole
) -> None:
    for event in begun(tmp_path).events():
        if event.number == 2:
            break
    run = again(tmp_path)
    assert run.progress.step == 0
    assert fingerprint(to_the_end(run)) == uninterrupted.of("language")
    assert without_times(metrics(tmp_path / "run")) == uninterrupted.metrics("language")


@pytest.mark.parametrize(("job", "bpe_dropout"), CASES[len(JOBS) :])
def test_noise_gives_other_bits_and_an_epoch_is_over_before_the_run_is(
    job: str, bpe_dropout: float, tmp_path: Path, uninterrupted: Whole
) -> None:
    run = begun(tmp_path, job, bpe_dropout)
    assert len(run.data_module.batch_indices(0)) + len(run.data_module.batch_indices(1)) < STEPS
    plain = replace(args(job, tmp_path, bpe_dropout), settings=args(job, tmp_path).settings)
    assert fingerprint(whole(tmp_path / "plain", plain)) != uninterrupted.of(job, bpe_dropout)


def test_another_seed_gives_other_bits(tmp_path: Path, uninterrupted: Whole) -> None:
    other = whole(tmp_path / "run", replace(args("language", tmp_path), seed=6))
    assert fingerprint(other) != uninterrupted.of("language")


def test_a_line_of_metrics_that_was_cut_short_does_not_stop_a_resume(tmp_path: Path) -> None:
    run = begun(tmp_path)
    for event in run.events():
        if isinstance(event, Evaluation):
            break
    with (tmp_path / "run" / METRICS).open("a") as file:
        file.write('{"step": 5, "lo')
    again(tmp_path)
    assert (tmp_path / "run" / METRICS).read_text().endswith("}\n")


@pytest.mark.parametrize("job", JOBS)
def test_the_recipe_file_is_the_recipe(job: str, tmp_path: Path) -> None:
    run = begun(tmp_path, job)
    assert read_recipe((tmp_path / "run" / RECIPE).read_text("utf-8")) == run.recipe


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    damage: str, tmp_path: Path, uninterrupted: Whole
) -> None:
    run = begun(tmp_path)
    for event in run.events():
        if isinstance(event, Evaluation) and event.number == 8:
            break
    newest = max((tmp_path / "run" / CHECKPOINTS).glob("step-*")) / "state.safetensors"
    content = newest.read_bytes()
    if damage == "truncated":
        newest.write_bytes(content[:-9])
    elif damage == "flipped":
        newest.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    else:
        newest.unlink()
    said = list[str]()
    run = again(tmp_path, said.append)
    assert run.progress.step == 4
    assert "step-00000008/state.safetensors" in said[0]
    assert fingerprint(to_the_end(run)) == uninterrupted.of("language")


def test_without_a_healthy_checkpoint_there_is_one_clear_line(tmp_path: Path) -> None:
    run = begun(tmp_path)
    for event in run.events():
        if isinstance(event, Evaluation):
            break
    for state in (tmp_path / "run" / CHECKPOINTS).rglob("state.safetensors"):
        state.unlink()
    with pytest.raises(TrainingError, match="no undamaged checkpoint"):
        load_newest(tmp_path / "run" / CHECKPOINTS, run.trainer, print)


@pytest.mark.parametrize("job", JOBS)
def test_changed_data_is_refused_on_resume(job: str, tmp_path: Path) -> None:
    begun(tmp_path, job).save()
    (path,) = (tmp_path / "data").iterdir()
    path.write_text(path.read_text().replace("cat", "cow", 1))
    with pytest.raises(TrainingError, match="the data is not what the recipe was made for"):
        again(tmp_path)


def test_data_that_is_gone_is_one_clear_line_on_resume(tmp_path: Path) -> None:
    begun(tmp_path).save()
    (tmp_path / "data" / "book.txt").unlink()
    with pytest.raises(QkvError, match=r"there is no file .*book.txt"):
        again(tmp_path)


def test_patience_ends_a_run_that_becomes_no_better_and_keeps_its_best(tmp_path: Path) -> None:
    """At such a rate nothing is learnt after the first evaluations."""
    data = written(tmp_path / "texts.csv", labelled(47))
    settings = {"patience": 2, "evaluate_every": 1, "optimizer": {"kind": "adamw", "lr": 1e-12}}
    run = start(tmp_path / "run", args_for("classify", data, 50, settings=settings))
    events = list(run.events())
    assert run.out_of_patience
    best = run.progress.best_step
    assert best is not None
    assert run.progress.step == best + 2 < 50
    assert isinstance(events[-1], Evaluation)
    run.finish()
    assert metrics(tmp_path / "run")[-1]["summary"]["best_step"] == best  # type: ignore[index]


def test_a_run_that_lost_its_patience_does_not_go_on_when_resumed(tmp_path: Path) -> None:
    data = written(tmp_path / "texts.csv", labelled(47))
    settings = {"patience": 2, "evaluate_every": 1, "optimizer": {"kind": "adamw", "lr": 1e-12}}
    run = whole(tmp_path / "run", args_for("classify", data, 50, settings=settings))
    second = again(tmp_path)
    assert list(second.events()) == []
    assert second.progress == run.progress


@pytest.mark.parametrize("job", JOBS)
def test_the_directory_becomes_a_bundle_with_all_that_led_to_it(job: str, tmp_path: Path) -> None:
    run = begun(tmp_path, job)
    events = list(run.events())
    judged = run.finish()
    place = run.directory
    bundle = Bundle.load(place)
    assert bundle.tokenizer is not None
    assert bundle.tokenizer.encode("the cat") == run.tokenizer.encode("the cat")
    names = {path.name for path in place.iterdir()}
    assert {RECIPE, METRICS, CHECKPOINTS, "MANIFEST.json", "tokenizer.json", "report.html"} <= names
    assert read_recipe((place / RECIPE).read_text("utf-8")) == run.recipe
    watched = run.data_module.metric
    values = [event.value for event in events if isinstance(event, Evaluation)]
    best = max(values) if watched.higher_is_better else min(values)
    assert run.data_module.validate(bundle.model)[watched.name] == pytest.approx(best, abs=1e-6)
    summary = metrics(place)[-1]["summary"]
    assert isinstance(summary, dict)
    assert summary["validation"] == dict(judged.scores)
    assert summary["steps"] == STEPS
    assert summary["tokens_seen"] == sum(e.tokens for e in events if not isinstance(e, Evaluation))


def test_a_run_that_was_finished_twice_has_one_summary(tmp_path: Path) -> None:
    """Killed while its report was written, it is resumed and finished again."""
    run = to_the_end(begun(tmp_path))
    append_metrics(run.directory, {"step": run.progress.step, "summary": {}})
    again(tmp_path).finish()
    assert sum("summary" in line for line in metrics(tmp_path / "run")) == 1


def test_a_fresh_translator_is_not_timed_while_it_rambles(tmp_path: Path) -> None:
    """It may write as many tokens as it reads, and not as many as an evaluation lets it."""
    run = start(tmp_path, args_for("translate", data_for("translate", tmp_path)))
    passes = list[str]()
    run.model.decoder.register_forward_hook(lambda *_: passes.append("one"))
    run.data_module.warm_up(run.model)
    rehearsed = len(passes)
    run.data_module.validate(run.model)
    assert rehearsed < (len(passes) - rehearsed) / 2


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "looks"), [(1e-5, 1), (60, 10)])
def test_a_time_budget_is_not_spent_on_looking(tmp_path: Path, minutes: float, looks: int) -> None:
    run = start(tmp_path, args_for("language", data_for("language", tmp_path)))
    run.fit_to_minutes(minutes)
    steps, every = run.recipe.steps, run.recipe.evaluate_every
    assert steps == run.trainer.total >= 10
    assert math.ceil(steps / every) == looks


@pytest.mark.slow
def test_the_time_a_step_takes_is_measured_without_a_trace(tmp_path: Path) -> None:
    """Also where layers are computed again: the copy that is measured is a copy."""
    settings = {"activation_checkpointing": True, "ema": 0.9}
    wished = args_for("language", data_for("language", tmp_path), settings=settings)
    plain, timed = (start(tmp_path / name, wished) for name in ("plain", "timed"))
    before = {name: t.clone() for name, t in timed.model.state_dict().items()}
    assert timed.measure_speed(3)[0] > 0
    assert timed.seconds_per_evaluation() > 0
    assert all(torch.equal(t, before[name]) for name, t in timed.model.state_dict().items())
    assert all(parameter.grad is None for parameter in timed.model.parameters())
    results = []
    for run in (plain, timed):
        torch.manual_seed(11)
        results.append(fingerprint(to_the_end(run)))
    assert results[0] == results[1]


@pytest.mark.slow
def test_killed_without_warning_it_goes_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Kill −9 at random moments of the program itself, --resume, again and again."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training.killed_runs", tmp_path]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert len(told["kills"]) == 20
    assert len(set(told["kills"])) > 2, "no kill hit a run that had got anywhere"
    assert told["finished"] > 0
    assert told["different"] == []
    assert told["unusable"] == []
