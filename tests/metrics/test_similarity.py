"""Spearman's correlation: by hand, against scipy, and where there is no order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy.stats import spearmanr

from qkv.errors import DataError
from qkv.metrics import spearman


def test_five_pairs_correlate_as_worked_out_by_hand() -> None:
    # ranks 1 2 3 4 5 against 2 1 4 3 5: 1 - 6·4 / (5·24)
    assert spearman([1, 10, 11, 12, 99], [0.2, 0.1, 0.4, 0.3, 0.5]) == pytest.approx(0.8)


def test_only_the_order_counts() -> None:
    assert spearman([-3, 0.5, 1e9], [1, 2, 3]) == pytest.approx(1)
    assert spearman([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    # ranks 1.5 1.5 3 against 1 2 3
    assert spearman([7, 7, 9], [1, 2, 3]) == pytest.approx(1.5 / 3**0.5)


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
