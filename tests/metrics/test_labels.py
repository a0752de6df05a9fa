"""Scores of labels, by hand and against scikit-learn."""

import random
from collections.abc import Sequence

import pytest
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    precision_score,
    recall_score,
)

from qkv.errors import DataError
from qkv.metrics import score_labels, wilson_interval

LABELS = ("bad", "fair", "good")


def test_seven_guesses_score_as_counted_by_hand() -> None:
    truth = ["good", "good", "good", "good", "bad", "bad", "fair"]
    guess = ["good", "good", "good", "bad", "bad", "good", "bad"]
    scores = score_labels(truth, guess, LABELS)
    assert scores.confusion == [
        [1, 0, 1],
        [1, 0, 0],
        [1, 0, 3],
    ]
    assert scores.accuracy == pytest.approx(4 / 7)
    good, bad = scores.per_label["good"], scores.per_label["bad"]
    assert (good.precision, good.recall, good.f1, good.count) == (3 / 4, 3 / 4, 3 / 4, 4)
    assert (bad.precision, bad.recall, bad.count) == (1 / 3, 1 / 2, 2)
    assert bad.f1 == pytest.approx(0.4)
    assert scores.macro_f1 == pytest.approx((0.75 + 0.4 + 0) / 3)


def test_a_label_never_guessed_has_precision_zero() -> None:
    fair = score_labels(["fair", "bad"], ["bad", "bad"], LABELS).per_label["fair"]
    assert (fair.precision, fair.recall, fair.f1, fair.count) == (0, 0, 0, 1)


def test_a_label_absent_from_the_truth_does_not_enter_the_macro_mean() -> None:
    scores = score_labels(["good", "bad", "bad"], ["good", "bad", "bad"], LABELS)
    assert scores.macro_f1 == 1
    assert scores.per_label["fair"].count == 0


def test_random_guesses_score_as_in_scikit_learn() -> None:
    chance = random.Random(5)
    labels = [f"label {number}" for number in range(11)]
    truth = chance.choices(labels[:-1], k=307)  # the last one never occurs
    guess = [chance.choice((true, chance.choice(labels))) for true in truth]
    scores = score_labels(truth, guess, labels)
    occurring = labels[:-1]
    assert scores.accuracy == pytest.approx(accuracy_score(truth, guess))
    assert scores.macro_f1 == pytest.approx(
        f1_score(truth, guess, labels=occurring, average="macro")
    )
    assert scores.confusion == confusion_matrix(truth, guess, labels=labels).tolist()
    for label in occurring:
        ours, asked = scores.per_label[label], {"labels": [label], "average": "macro"}
        assert ours.precision == pytest.approx(precision_score(truth, guess, **asked))
        assert ours.recall == pytest.approx(recall_score(truth, guess, **asked))
        assert ours.f1 == pytest.approx(f1_score(truth, guess, **asked))


@pytest.mark.parametrize(
    ("truth", "guess", "labels", "message"),
    [
        (["bad"], [], LABELS, "1 true labels but 0 guesses"),
        ([], [], LABELS, "no labels to score"),
        (["god"], ["good"], LABELS, 'unknown label "god"; did you mean "good"?'),
        (["good"], ["god"], LABELS, 'unknown label "god"'),
        (["bad"], ["bad"], ("bad", "bad"), 'label "bad" is listed twice'),
    ],
)
def test_what_cannot_be_scored_says_why(
    truth: list, guess: list, labels: Sequence[str], message: str
) -> None:
    with pytest.raises(DataError) as error:
        score_labels(truth, guess, labels)
    assert message in str(error.value)


@pytest.mark.parametrize(("correct", "total"), [(0, 10), (8, 10), (10, 10), (856, 1000), (1, 1)])
def test_the_interval_of_an_accuracy_is_wilsons(correct: int, total: int) -> None:
    expected = binomtest(correct, total).proportion_ci(method="wilson")
    assert wilson_interval(correct, total) == pytest.approx(tuple(expected), abs=1e-6)


def test_there_is_no_interval_without_examples() -> None:
    with pytest.raises(DataError, match="0 of 0 examples"):
        wilson_interval(0, 0)
