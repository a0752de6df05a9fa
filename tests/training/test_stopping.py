"""Stopped at any moment, a run leaves a model that answers, and can be resumed or finished."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.training.tiny_runs import (
    CPU,
    args_for,
    data_for,
    fingerprint,
    labelled,
    start,
    whole,
    written,
)

import qkv
from qkv.bundle import BEST, MANIFEST, Bundle
from qkv.cli.progress import TrainingProgress
from qkv.errors import QkvError
from qkv.training import run as run_module
from qkv.training.checkpoint import read_progress
from qkv.training.launch import reopen
from qkv.training.recipe import read_recipe
from qkv.training.run import Evaluation, Run
from qkv.training.run_directory import CHECKPOINTS, METRICS, OLD_MANIFEST, RECIPE, unfinish

STEPS, EVERY = 9, 4
SETTINGS = {"ema": 0.9, "evaluate_every": EVERY}


def begun(folder: Path, job: str = "language") -> Run:
    args = args_for(job, data_for(job, folder / "data"), STEPS, settings=SETTINGS)
    return start(folder / "run", args)


def stopped(folder: Path, after: int, job: str = "language") -> Run:
    """A run that was saved after that step, before an evaluation that may be due there."""
    run = begun(folder, job)
    for event in run.events():
        if not isinstance(event, Evaluation) and event.number == after:
            break
    run.save()
    return run


def reopened(folder: Path) -> Run:
    torch.rand(3)  # whatever happened in between
    run = reopen(folder / "run", CPU)
    run.resume(print)
    return run


def to_the_end(run: Run) -> Run:
    for _ in run.events():
        pass
    return run


def metrics(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "run" / METRICS).read_text().splitlines()]
    return [{name: v for name, v in line.items() if name != "seconds"} for line in lines]


def weights(directory: Path) -> str:
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("job", ["language", "classify", "translate"])
def test_after_each_best_evaluation_the_directory_is_that_model(job: str, tmp_path: Path) -> None:
    run = begun(tmp_path, job)
    best = 0
    for event in run.events():
        if isinstance(event, Evaluation) and event.best:
            best += 1
            bundle = Bundle.load(run.directory)
            scores = run.data_module.validate(bundle.model)
            assert scores[run.data_module.metric.name] == pytest.approx(event.value, abs=1e-6)
            assert bundle.tokenizer is not None
    assert best > 0
    assert not (run.directory / MANIFEST).exists()
    run.finish()
    assert (run.directory / MANIFEST).exists()
    assert not (run.directory / BEST).exists()
    assert Bundle.load(run.directory).model.config == run.recipe.model


def test_stopped_before_the_first_evaluation_there_is_a_model_all_the_same(tmp_path: Path) -> None:
    run = stopped(tmp_path, after=2)
    model = qkv.load(run.directory)
    assert model.generate("the cat", max_tokens=3).finish().tokens
    undisturbed = to_the_end(begun(tmp_path / "other"))
    assert fingerprint(to_the_end(reopened(tmp_path))) == fingerprint(undisturbed)
    assert metrics(tmp_path) == metrics(tmp_path / "other")


def test_a_killed_process_loses_minutes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "MAX_UNSAVED_SECONDS", -1.0)
    run = begun(tmp_path)
    for event in run.events():
        if event.number == 3:
            break
    progress = read_progress(run.directory / CHECKPOINTS)
    assert progress is not None
    assert progress.step == 2
    assert Bundle.load(run.directory).tokenizer is not None


def test_killed_while_the_best_is_replaced_the_old_one_is_there(tmp_path: Path) -> None:
    run = stopped(tmp_path, after=5)
    best = run.directory / BEST
    before = weights(best)
    best.rename(best.with_name(".best.old"))
    assert Bundle.load(run.directory).tokenizer is not None
    to_the_end(reopened(tmp_path))
    assert not best.with_name(".best.old").exists()
    assert weights(best) != before


def test_stopped_in_an_evaluation_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.should_stop = lambda: True
    with pytest.raises(KeyboardInterrupt):
        to_the_end(run)
    run.save()
    assert (run.progress.step, run.progress.best) == (EVERY, None)
    undisturbed = to_the_end(begun(tmp_path / "other"))
    assert fingerprint(to_the_end(reopened(tmp_path))) == fingerprint(undisturbed)
    assert metrics(tmp_path) == metrics(tmp_path / "other")


def test_finished_early_it_is_a_bundle_and_still_resumes_to_the_same_bits(tmp_path: Path) -> None:
    undisturbed = to_the_end(begun(tmp_path / "other"))
    bits = fingerprint(undisturbed)
    undisturbed.finish()
    stopped(tmp_path, after=6)
    place = tmp_path / "run"
    events = list(qkv.train(output=place, finish=True))
    assert [type(event) for event in events] == [qkv.Finished]
    assert (place / "report.html").exists()
    assert metrics(tmp_path)[-1]["summary"]["steps"] == 6  # type: ignore[index]
    assert qkv.load(place).tokenizer is not None
    resumed = qkv.train(output=place, resume=True)
    assert not (place / "report.html").exists()
    assert qkv.load(place).tokenizer is not None
    assert fingerprint(to_the_end(resumed)) == bits
    resumed.finish()
    assert weights(place) == weights(tmp_path / "other" / "run")
    assert read_recipe((place / RECIPE).read_text("utf-8")).steps == STEPS


def test_nothing_was_saved_so_nothing_can_be_finished(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(QkvError, match="stopped before anything was saved"):
        qkv.train(output=tmp_path / "run", finish=True)
    with pytest.raises(QkvError, match="nowhere to finish"):
        qkv.train(output=tmp_path / "nowhere", finish=True)
    with pytest.raises(QkvError, match="finish=True takes no more steps"):
        qkv.train(output=tmp_path / "run", finish=True, steps=4)


@pytest.mark.parametrize(("steps", "last"), [(7, 7), (3, 5), (12, 12)])
def test_a_run_is_resumed_to_fewer_or_more_steps(steps: int, last: int, tmp_path: Path) -> None:
    stopped(tmp_path, after=5)
    run = qkv.train(output=tmp_path / "run", resume=True, steps=steps)
    numbers = [event.number for event in run.events() if isinstance(event, qkv.Step)]
    assert numbers == list(range(6, last + 1))
    run.finish()
    assert read_recipe((tmp_path / "run" / RECIPE).read_text("utf-8")).steps == last
    if steps < 5:
        assert "5 steps are done already, more than 3: no more are taken" in run.notes


def test_a_finished_run_takes_more_steps_and_loads_all_the_while(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.finish()
    longer = qkv.train(output=run.directory, resume=True, epochs=1.0)
    assert longer.recipe.steps == max(STEPS, len(longer.data_module.batch_indices(0)))
    for event in longer.events():
        assert qkv.load(run.directory).tokenizer is not None
        if event.number == STEPS + 2:
            break
    longer.save()
    with pytest.raises(QkvError, match="steps and epochs exclude each other"):
        qkv.train(output=run.directory, resume=True, steps=5, epochs=1.0)
    finished = qkv.train(output=run.directory, finish=True)
    finished.finish()
    assert finished.progress.step == STEPS + 2


def test_killed_while_a_finished_run_is_reopened_it_loads_and_goes_on(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.finish()
    place = run.directory
    files = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    unfinish(place)
    # Killed before it deleted anything: the manifest was moved, the other files are there.
    (place / OLD_MANIFEST).write_bytes(files[MANIFEST])
    for name in files.keys() - {MANIFEST}:
        (place / name).write_bytes(files[name])
    assert Bundle.load(place).tokenizer is not None
    qkv.train(output=place, resume=True, steps=STEPS + 1).finish()
    assert Bundle.load(place).tokenizer is not None


def test_a_finished_run_without_checkpoints_is_not_trained_from_the_beginning(
    tmp_path: Path,
) -> None:
    run = begun(tmp_path)
    run.finish()
    shutil.rmtree(run.directory / CHECKPOINTS)
    with pytest.raises(QkvError, match="its checkpoints are gone"):
        qkv.train(output=run.directory, resume=True, steps=20)
    assert Bundle.load(run.directory).tokenizer is not None


def test_more_steps_go_on_where_early_stopping_ended_a_run(tmp_path: Path) -> None:
    data = written(tmp_path / "texts.csv", labelled(47))
    settings = {"patience": 2, "evaluate_every": 1, "optimizer": {"kind": "adamw", "lr": 1e-12}}
    run = whole(tmp_path / "run", args_for("classify", data, 50, settings=settings))
    run.finish()
    with pytest.raises(QkvError, match="is finished; there is nothing to resume"):
        qkv.train(output=run.directory, resume=True)
    step = run.progress.step
    longer = qkv.train(output=run.directory, resume=True, steps=step + 1)
    assert any("it no longer does" in note for note in longer.notes)
    assert any(isinstance(event, qkv.Step) for event in longer.events())


def test_one_process_at_a_time_trains_a_run(tmp_path: Path) -> None:
    run = stopped(tmp_path, after=2)
    command = [
        *(sys.executable, "-m", "qkv", "train", "-o", str(run.directory), "--finish"),
        *("--device", "cpu", "--threads", "1"),
    ]
    events = run.events()
    next(events)
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "another process is training the run" in refused.stderr
    events.close()  # type: ignore[attr-defined]
    assert qkv.train(output=run.directory, finish=True).finish().scores


def test_after_a_resume_the_speed_is_that_of_this_run(tmp_path: Path) -> None:
    """What was trained before took a million seconds."""
    run = stopped(tmp_path, after=3)
    slow = run_module.replace(run.progress, seconds=1e6)
    second = reopened(tmp_path)
    second.progress = slow
    printer = TrainingProgress(second)
    (evaluation,) = [e for e in second.events() if isinstance(e, Evaluation) and e.number == EVERY]
    line = printer._evaluation_line(evaluation)
    tokens = second.progress.tokens - slow.tokens
    assert f"{tokens / (second.progress.seconds - 1e6):,.0f} tokens/s" in line
    # Evaluated before any step, there is neither a speed nor a time that remains.
    printer = TrainingProgress(second)
    assert "tokens/s" not in printer._evaluation_line(evaluation)
