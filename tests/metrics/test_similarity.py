"""Spearman's correlation, LSA, and what is measured without labels: by hand, and at the edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import spearmanr

from qkv.errors import DataError
from qkv.metrics import LatentSemanticAnalysis, neighbour_overlap, score_halves, spearman


def test_five_pairs_correlate_as_worked_out_by_hand() -> None:
    # ranks 1 2 3 4 5 against 2 1 4 3 5: 1 - 6·4 / (5·24)
    assert spearman([1, 10, 11, 12, 99], [0.2, 0.1, 0.4, 0.3, 0.5]) == pytest.approx(0.8)


def test_only_the_order_counts() -> None:
    assert spearman([-3, 0.5, 1e9], [1, 2, 3]) == pytest.approx(1)
    assert spearman([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    # ranks 1.5 1.5 3 against 1 2 3
    assert spearman([7, 7, 9], [1, 2, 3]) == pytest.approx(1.5 / 3**0.5)


@settings(deadline=None)
@given(some.lists(some.tuples(some.integers(0, 5), some.floats(-3, 3, width=16)), min_size=2))
def test_any_pairs_correlate_as_in_scipy(pairs: list[tuple[int, float]]) -> None:
    guessed, truth = (list(side) for side in zip(*pairs, strict=True))
    if len(set(guessed)) == 1 or len(set(truth)) == 1:
        return
    assert spearman(guessed, truth) == pytest.approx(spearmanr(guessed, truth).statistic)


def test_guesses_that_are_all_equal_order_nothing() -> None:
    assert spearman([0.5, 0.5, 0.5], [1, 2, 3]) == 0


@pytest.mark.parametrize(
    ("guessed", "truth", "message"),
    [
        ([1, 2, 3], [4, 4, 4], "all 3 true scores are 4; a rank correlation needs at least two"),
        ([1, 2], [1, 2, 3], "2 guesses but 3 true scores"),
        ([1], [1], "1 scored pairs; a rank correlation needs at least two"),
        ([1, np.nan], [1, 2], "guess 2 of 2 is not a number"),
    ],
)
def test_what_cannot_be_ordered_says_why(guessed: list, truth: list, message: str) -> None:
    with pytest.raises(DataError) as error:
        spearman(guessed, truth)
    assert message in str(error.value)


BREAD = ["flour", "yeast", "oven", "dough", "crust"]
SHIPS = ["harbour", "sail", "anchor", "captain", "deck"]
TEXTS = [f"{a} with {b}" for words in (BREAD, SHIPS) for a in words for b in words if a != b]


def test_lsa_puts_words_of_one_topic_together_though_they_share_no_text() -> None:
    lsa = LatentSemanticAnalysis([text for text in TEXTS if text != "flour with crust"], 2)
    flour, crust, sail, unknown = lsa(["flour", "crust", "sail", "the zebra"])
    assert float(flour @ crust) > 0.95
    assert abs(float(flour @ sail)) < 0.05
    assert not unknown.any()


def test_lsa_is_the_same_each_time_and_has_no_more_components_than_the_texts() -> None:
    one, other = (LatentSemanticAnalysis(TEXTS, 100, seed=3)(TEXTS) for _ in range(2))
    assert one.tobytes() == other.tobytes()
    assert one.shape == (40, 9)
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("texts", [["the", "and it"], ["!"], ["flour", "flour"]])
def test_texts_without_words_are_nothing_to_learn_from(texts: list[str]) -> None:
    with pytest.raises(DataError, match="the texts hold"):
        LatentSemanticAnalysis(texts, 5)


def test_halves_are_compared_with_those_of_all_other_texts() -> None:
    axes = np.eye(5, dtype=np.float32)
    assert score_halves(axes, axes) == 1
    assert score_halves(axes, np.roll(axes, 1, axis=0)) == pytest.approx(0.75 / 2)
    assert score_halves(axes, np.zeros_like(axes)) == 0.5
    with pytest.raises(DataError, match="at least two"):
        score_halves(axes[:1], axes[:1])


def test_neighbours_overlap_fully_with_themselves_and_by_hand_with_others() -> None:
    angles = np.array([0.0, 0.1, 0.5, 1.4])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert neighbour_overlap(vectors, vectors, 2) == 1
    # nearest by the first: 1 0 1 2; by the second, whose last two changed places: 1 0 3 1
    assert neighbour_overlap(vectors, vectors[[0, 1, 3, 2]], 1) == 0.5
    assert neighbour_overlap(vectors[:1], vectors[:1]) == 1
