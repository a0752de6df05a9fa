"""Counted words as a teacher: each text is answered by what the others teach, and only by that."""

import numpy as np
import pytest

from qkv.metrics.classification import FOLDS, out_of_fold_probs

TEXTS = [f"{mark} word{i % 7} word{i % 5}" for i in range(31) for mark in ("fine", "dull")]
NUMBERS = np.array([0, 1] * 31)


def test_a_word_that_marks_a_label_is_found_in_texts_not_learnt_from() -> None:
    shares = out_of_fold_probs(TEXTS, NUMBERS, labels=2, seed=3)
    assert (shares.argmax(axis=1) == NUMBERS).all()
    assert shares.sum(axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)


def test_a_texts_own_label_never_reaches_its_answer() -> None:
    before = out_of_fold_probs(TEXTS, NUMBERS, labels=2, seed=3)
    turned = NUMBERS.copy()
    turned[11] = 1 - turned[11]
    after = out_of_fold_probs(TEXTS, turned, labels=2, seed=3)
    assert (after[11] == before[11]).all()
    assert (after != before).any()


def test_the_seed_deals_the_texts() -> None:
    one, same, other = (out_of_fold_probs(TEXTS, NUMBERS, 2, seed) for seed in (3, 3, 4))
    assert (one == same).all()
    assert (one != other).any()


def test_a_label_the_others_do_not_have_is_not_expected() -> None:
    numbers = np.append(NUMBERS, 2)
    shares = out_of_fold_probs([*TEXTS, "odd one"], numbers, labels=3, seed=0)
    assert shares[-1, 2] == 0
    assert shares[-1].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("count", [1, 2, 3, FOLDS + 1])
def test_texts_without_words_get_the_frequencies_of_labels(count: int) -> None:
    shares = out_of_fold_probs(["?"] * count, np.arange(count) % 2, labels=2, seed=0)
    assert shares.sum(axis=1) == pytest.approx(np.ones(count), abs=1e-5)
