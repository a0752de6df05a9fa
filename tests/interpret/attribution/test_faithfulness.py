"""The test of a ranking, on answers whose words are known to add up."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.interpret.attribution.faithfulness import (
    WordSet,
    alignment_faithfulness,
    deletion_counts,
    faithfulness,
    win_rate,
)
from qkv.interpret.attribution.occlusion import DeletionCache

WEIGHTS = [0.5, 0.02, 0.01, 0.31, 0.0, 0.03, 0.0, 0.04, 0.01, 0.05, 0.02]
BEST = sorted(range(11), key=lambda word: -WEIGHTS[word])


def adding_up(weights: Sequence[float]):  # type: ignore[no-untyped-def]
    def answers(sets: Sequence[WordSet]) -> list[float]:
        return [sum(w for i, w in enumerate(weights) if i not in words) for words in sets]

    return answers


def test_deleting_the_words_that_count_moves_the_answer_and_the_verdict_has_the_numbers() -> None:
    test = faithfulness(BEST, adding_up(WEIGHTS), "the probability of “glad”")
    assert test is not None
    assert test.trust.better is True
    assert test.win_rate > 0.95
    three = next(one for one in test.deletions if one.words == 3)
    assert three.drop == pytest.approx(0.86)
    assert three.bottom_drop == pytest.approx(0.01)
    assert three.only_top_drop == pytest.approx(0.99 - 0.86)
    assert three.random_drop == pytest.approx(3 / 11 * 0.99, abs=0.15)
    verdict = test.trust.verdict
    assert verdict.startswith(
        "deleting the 3 words named lowers the probability of “glad” by 0.86; 3 random ones by 0."
    )
    assert "better than chance" in verdict


def test_a_ranking_upside_down_is_no_better_than_chance_and_says_so() -> None:
    test = faithfulness(BEST[::-1], adding_up(WEIGHTS), "it")
    assert test is not None
    assert test.trust.better is False
    assert "no better than chance" in test.trust.verdict
    assert "do not rely on it" in test.trust.verdict
    assert test.comprehensiveness < test.random_drop


def test_a_ranking_that_is_only_a_little_better_is_not_clearly_so() -> None:
    middling = [BEST[i] for i in (3, 1, 4, 5, 6, 0, 2, 7, 8, 9, 10)]
    test = faithfulness(middling, adding_up(WEIGHTS), "it")
    assert test is not None
    assert 0.5 < test.win_rate <= 0.95
    assert test.trust.better is False
    assert "not clearly better than chance" in test.trust.verdict


def test_shuffled_rankings_are_about_as_good_as_random_ones() -> None:
    rng = np.random.default_rng(7)
    tests = [
        faithfulness(rng.permutation(11).tolist(), adding_up(WEIGHTS), "it", seed=seed)
        for seed in range(60)
    ]
    assert np.mean([test.win_rate for test in tests if test]) == pytest.approx(0.5, abs=0.1)
    assert sum(bool(test.trust.better) for test in tests if test) <= 6


def test_where_nothing_moves_no_ranking_is_better_than_chance() -> None:
    test = faithfulness(list(range(9)), adding_up([0.0] * 9), "it")
    assert test is not None
    assert (test.win_rate, test.trust.better) == (0.5, False)


@pytest.mark.parametrize("words", [1, 2, 3, 4])
def test_with_a_handful_of_words_chance_cannot_be_told_from_reason(words: int) -> None:
    test = faithfulness(list(range(words)), adding_up([1.0, 0.1, 0.2, 0.0][:words]), "it")
    assert test is not None
    assert test.trust.better is None
    assert "too few words" in test.trust.verdict


def test_without_words_there_is_nothing_to_test() -> None:
    assert faithfulness([], adding_up([]), "it") is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_of_answers_that_add_up_the_best_ranking_moves_most(
    weights: list[float], random: object
) -> None:
    n = len(weights)
    best = sorted(range(n), key=lambda word: -weights[word])
    other = list(range(n))
    random.shuffle(other)  # type: ignore[attr-defined]
    top, shuffled = (faithfulness(order, adding_up(weights), "it") for order in (best, other))
    assert top is not None
    assert shuffled is not None
    assert top.comprehensiveness >= shuffled.comprehensiveness - 1e-9
    assert top.win_rate >= 0.5 - 1e-9
    assert top.random_drop == shuffled.random_drop  # the same seed, the same draws
    for one in top.deletions:
        assert one.drop == pytest.approx(sum(weights[w] for w in best[: one.words]), abs=1e-9)
        assert one.bottom_drop <= one.random_drop + 1e-9 <= one.drop + 2e-9


@given(st.integers(1, 700))
def test_a_few_words_are_deleted_and_up_to_half(n: int) -> None:
    counts = deletion_counts(n)
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    assert max(counts) == max(1, min(n - 1, max(3, round(n / 2))))


def test_each_set_of_words_is_asked_for_once() -> None:
    evaluated: list[WordSet] = []

    def evaluate(sets: list[WordSet]) -> list[int]:
        evaluated.extend(sets)
        return [len(words) for words in sets]

    deletions = DeletionCache(evaluate)
    assert deletions.leave_one_out(3) == [1, 1, 1]
    assert deletions([frozenset(), frozenset({2}), frozenset({0, 1}), frozenset({0, 1})]) == [
        0, 1, 2, 2,
    ]  # fmt: skip
    assert len(evaluated) == len(set(evaluated)) == 5


def test_an_alignment_is_tested_by_hiding_what_it_leads_to() -> None:
    drops = np.array(
        [[5.0, 0.1, 0.0, 0.0], [0.0, 7.0, 0.2, 0.1], [0.1, 0.0, 6.0, 0.0], [0.0, 0.0, 0.1, 6.0]]
    )
    right = alignment_faithfulness(np.eye(4), drops, -0.3, seed=0)
    wrong = alignment_faithfulness(np.roll(np.eye(4), 1, axis=1), drops, -0.3, seed=0)
    assert right.deletions[0].drop == pytest.approx(6.0)
    assert right.deletions[0].random_drop == pytest.approx(drops.mean(), abs=0.4)
    assert (right.trust.better, wrong.trust.better) == (True, False)
    assert right.sufficiency is None


def test_equal_ones_count_half() -> None:
    assert win_rate(1.0, [0.0, 1.0, 2.0, 0.5]) == pytest.approx(2.5 / 4)


def test_what_is_written_is_plain_numbers() -> None:
    test = faithfulness(BEST, adding_up(WEIGHTS), "it")
    assert test is not None
    written = test.json()
    assert written["verdict"] == test.trust.verdict
    for one in written["deletions"]:  # type: ignore[attr-defined]
        assert all(type(value) in (int, float) and math.isfinite(value) for value in one.values())
