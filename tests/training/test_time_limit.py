"""Minutes are a limit: of steps, of evaluations that take too long, and of the report."""

import time
from pathlib import Path

import pytest
from tests.training.tiny_runs import JOBS, args_for, data_for, start

from qkv.bundle import Bundle
from qkv.training.recipe import read_recipe
from qkv.training.run import Evaluation, Run
from qkv.training.run_directory import RECIPE
from qkv.training.tasks.translate_data import evaluate_translations
from qkv.training.time_limit import OutOfTimeError, StepTimer, TimeLimit, interruptible

HOUR = 60.0


def run_of(job: str, folder: Path) -> Run:
    return start(folder / "run", args_for(job, data_for(job, folder / "data"), 20))


def timer_of(seconds: float, steps: int) -> StepTimer:
    timer = StepTimer()
    timer.steps = steps + 3  # the first ones are not timed
    timer.seconds = seconds
    return timer


def hour() -> TimeLimit:
    """Sixty minutes from now, for steps of a second and evaluations of ten."""
    limit = TimeLimit(HOUR, time.perf_counter())
    limit.per_evaluation = 10.0
    return limit


def test_steps_evaluations_and_the_report_fit_into_the_plan() -> None:
    limit = hour()
    steps = limit.plan_steps(step=100, per_step=1.0, evaluations=10) - 100
    assert steps + 12 * 10 + limit.report_seconds <= 3600
    assert steps > 3200


def test_steps_that_turn_out_slower_become_fewer_and_then_more_again() -> None:
    limit = hour()
    steps = limit.plan_steps(0, 1.0, 10)
    slow = timer_of(seconds=800.0, steps=400)
    fewer = limit.replan_steps(400, steps, 300, slow)
    assert 400 + 1500 < fewer < 400 + 1800
    assert limit.replan_steps(400, fewer, 300, slow) == fewer
    assert limit.replan_steps(400, fewer, 300, timer_of(400.0, 400)) > fewer
    assert limit.replan_steps(400, fewer, 300, timer_of(100.0, 400)) == fewer  # too few to know
    assert limit.replan_steps(400, fewer, 300, timer_of(200.0, 400)) == limit.planned_steps


def test_when_the_time_is_up_no_step_is_taken() -> None:
    limit = TimeLimit(1.0, time.perf_counter() - 60)
    limit.planned_steps = 50
    assert limit.replan_steps(7, 50, 5, timer_of(0.0, 1)) == 7


def test_slow_evaluations_become_fewer() -> None:
    limit = hour()
    assert limit.affordable_evaluations() == 10
    limit.per_evaluation = 200.0
    assert limit.affordable_evaluations() == 3
    limit.per_evaluation = 2000.0
    assert limit.affordable_evaluations() == 1


def test_an_evaluation_in_the_middle_may_not_use_up_the_time() -> None:
    limit = hour()
    assert limit.seconds_for_evaluation(is_last=False) == pytest.approx(360)
    assert 2000 < limit.seconds_for_evaluation(is_last=True) < 2400


@pytest.mark.parametrize("job", JOBS)
def test_the_evaluations_of_every_job_can_be_interrupted(job: str, tmp_path: Path) -> None:
    run = run_of(job, tmp_path)
    for work in (run.data_module.validate, run.data_module.evaluate):
        with pytest.raises(OutOfTimeError), interruptible(0.0, lambda: False):
            work(run.model)
        with pytest.raises(KeyboardInterrupt), interruptible(None, lambda: True):
            work(run.model)
    assert run.data_module.validate(run.model)


@pytest.mark.parametrize("job", ["language", "translate"])
def test_time_that_is_up_leaves_a_finished_model_and_says_so(job: str, tmp_path: Path) -> None:
    run = run_of(job, tmp_path)
    run.limit = TimeLimit(0.0, time.perf_counter())
    assert [event.number for event in run.events()] == [1]
    result = run.finish()
    assert result.scores == {}
    assert not result.complete
    assert any("the evaluation took too long" in note for note in run.notes)
    assert any("no time for the final evaluation" in remark for remark in result.remarks)
    assert Bundle.load(run.directory).tokenizer is not None
    assert read_recipe((run.directory / RECIPE).read_text("utf-8")).steps == 1


def test_without_time_for_the_final_evaluation_the_scores_are_the_best_so_far(
    tmp_path: Path,
) -> None:
    run = run_of("language", tmp_path)
    events = list(run.events())
    best = [event for event in events if isinstance(event, Evaluation) and event.best][-1]
    run.limit = TimeLimit(0.0, time.perf_counter())
    assert run.finish().scores == best.scores


def test_an_evaluation_that_is_given_up_makes_the_others_rarer(tmp_path: Path) -> None:
    run = run_of("language", tmp_path)
    run.limit = hour()
    run.limit.planned_steps = 20
    run._plan_evaluations(seconds=700.0)
    assert run.recipe.evaluate_every == 20
    assert read_recipe((run.directory / RECIPE).read_text("utf-8")) == run.recipe


def test_a_translator_that_rambles_is_scored_on_the_pairs_that_it_can_translate_in_time(
    tmp_path: Path,
) -> None:
    run = run_of("translate", tmp_path)
    pairs = run.data_module.split.train  # type: ignore[attr-defined]
    past = evaluate_translations(run.model, run.tokenizer, pairs, 1, deadline=time.perf_counter())
    assert past.examples == 4 < len(pairs)
    assert past.remarks[0].startswith(f"measured on 4 of {len(pairs)} pairs")
    assert not past.complete
    later = time.perf_counter() + 600
    in_time = evaluate_translations(run.model, run.tokenizer, pairs, 1, deadline=later)
    whole = evaluate_translations(run.model, run.tokenizer, pairs, 1)
    assert in_time == whole
    assert whole.complete


def test_a_baseline_that_takes_too_long_is_left_out_with_a_remark(tmp_path: Path) -> None:
    run = run_of("classify", tmp_path)
    run.data_module.deadline = time.perf_counter()
    result = run.data_module.evaluate(run.model)
    assert result.baseline == {}
    assert "no time for the baseline" in result.remarks[-1]
    assert not result.complete
    run.data_module.deadline = time.perf_counter() + 600
    assert "macro_f1" in run.data_module.evaluate(run.model).baseline


@pytest.mark.parametrize("job", ["language", "masked"])
def test_a_long_validation_text_is_measured_in_part_when_time_is_short(
    job: str, tmp_path: Path
) -> None:
    run = run_of(job, tmp_path)
    whole = run.data_module.validate(run.model)["loss"]
    run.data_module.deadline = time.perf_counter()
    assert run.data_module.validate(run.model)["loss"] == pytest.approx(whole, rel=0.1)
    result = run.data_module.evaluate(run.model)
    assert not result.complete
    assert "first part of the validation text" in result.remarks[0]
    run.data_module.deadline = None
    assert run.data_module.evaluate(run.model).complete
