"""The sentences: whether the baseline was beaten, and the curves for who cannot see them."""

import math

import pytest

from qkv.report import TrainingReport
from qkv.report.summary import describe_curves, format_score, optimism, read_curves, verdict


def _story(ours, theirs, metric="accuracy", higher=True):
    scores = {} if ours is None else {metric: ours}
    baseline = None if theirs is None else ("a coin", {metric: theirs})
    return TrainingReport("title", "job", metric, higher, [], [], [], scores, baseline)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.91349, "0.913"),
        (-0.5, "−0.500"),
        (34.209, "34.21"),
        (1234.5678, "1,235"),
        (0.0, "0.000"),
        (0.00001, "1.0e-05"),
        (math.nan, "not a number"),
        (math.inf, "infinite"),
    ],
)
def test_figures_have_as_many_digits_as_one_reads(value: float, shown: str) -> None:
    assert format_score(value) == shown


def test_a_better_model_says_by_how_much() -> None:
    said = verdict(_story(0.9, 0.8))
    assert said.startswith("The model beats its baseline by 0.100.")
    assert "accuracy is 0.900" in said
    assert "a coin, has 0.800 (higher is better)" in said


@pytest.mark.parametrize(("ours", "theirs", "higher"), [(0.7, 0.8, True), (2.5, 2.4, False)])
def test_a_worse_model_says_so_first(ours: float, theirs: float, higher: bool) -> None:
    said = verdict(_story(ours, theirs, "loss", higher))
    assert said.startswith("The model did not beat its baseline.")


def test_a_lower_loss_beats() -> None:
    said = verdict(_story(1.5, 3.25, "loss", False))
    assert said.startswith("The model beats its baseline by 1.750.")


def test_a_difference_that_is_not_shown_is_not_claimed() -> None:
    assert verdict(_story(0.80004, 0.8)).startswith("The model did not beat its baseline: both")


def test_no_baseline_no_score_and_no_number_are_said() -> None:
    assert "no baseline to compare" in verdict(_story(0.9, None))
    assert "no baseline to compare" in verdict(_story(0.9, math.nan))
    assert "was not scored" in verdict(_story(None, 0.5))
    assert "cannot be used" in verdict(_story(math.nan, 0.5))


def test_the_course_states_the_numbers_of_the_curves() -> None:
    lines = [
        {"step": 1, "loss": 4.0, "finite": True},
        {"step": 2, "loss": math.nan, "finite": False},
        {"step": 3, "loss": 2.0, "finite": True},
        {"step": 1, "validation": {"loss": 3.5, "bleu": 11.0}},
        {"step": 2, "validation": {"loss": 3.0, "bleu": 25.5}},
        {"step": 3, "validation": {"loss": 3.25, "bleu": 24.0}},
    ]
    assert describe_curves(read_curves(lines, "bleu", True), "bleu") == (
        "Training loss went from 4.000 at step 1 to 2.000 at step 3. "
        "Validation loss was 3.500 at step 1 and 3.250 at step 3. "
        "Validation BLEU was 11.00 at step 1 and 24.00 at step 3. "
        "The best validation BLEU, 25.50, came at step 2. "
        "1 step had no finite loss. 1 step did not change the model."
    )


def test_the_course_of_no_run_says_so() -> None:
    assert (
        describe_curves(read_curves([], "loss", False), "loss") == "No training steps were logged."
    )
    broken = read_curves([{"step": 1, "loss": math.inf}], "loss", False)
    assert describe_curves(broken, "loss").startswith("The training loss was never finite.")


def test_a_classifier_is_judged_by_its_accuracy_with_an_interval() -> None:
    scores = {"accuracy": 0.9, "macro_f1": 0.4}
    baseline = ("a coin", {"accuracy": 0.5, "macro_f1": 0.45})
    intervals = {"accuracy": (0.85, 0.94)}
    report = TrainingReport(
        "title", "job", "macro_f1", True, [], [], [], scores, baseline, intervals=intervals
    )
    sentences = verdict(report)
    assert sentences.startswith("The model beats its baseline by 0.400.")
    assert "the accuracy is 0.900 (95 % interval 0.850 to 0.940)" in sentences
    assert "macro" not in sentences


def test_a_split_that_was_looked_at_often_is_called_optimistic() -> None:
    assert optimism(0) == ""
    assert "optimistic" not in optimism(1)
    assert "12 times" in optimism(12)
    assert "optimistic" in optimism(12)
