"""Clusters against labels: clear ones, hopeless ones, odd ones, and the quoted figure."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from qkv.errors import DataError
from qkv.metrics import bag_of_words_vectors, score_clusters


def _groups(spread, n=61, width=7):
    """Three groups of vectors around corners of a cube, and their labels."""
    chance = np.random.default_rng(3)
    labels = [("red", "green", "blue")[at % 3] for at in range(n)]
    centres = {"red": 0, "green": 1, "blue": 2}
    corners = np.eye(width)[[centres[label] for label in labels]]
    return corners + spread * chance.standard_normal((n, width)), labels


def test_groups_that_lie_apart_are_found_exactly() -> None:
    scores = score_clusters(*_groups(0.02), seed=1)
    assert (scores.v_measure, scores.adjusted_rand, scores.accuracy) == pytest.approx((1, 1, 1))


def test_noise_gives_clusters_that_say_nothing() -> None:
    scores = score_clusters(*_groups(50.0), seed=1)
    assert abs(scores.adjusted_rand) < 0.1
    assert 1 / 3 <= scores.accuracy < 0.6


def test_one_text_in_the_wrong_group_costs_one_text_of_accuracy() -> None:
    vectors, labels = _groups(0.02)
    labels[0] = "green" if labels[0] != "green" else "red"
    assert score_clusters(vectors, labels, seed=1).accuracy == pytest.approx(60 / 61)


def test_the_names_of_labels_do_not_matter() -> None:
    vectors, labels = _groups(0.6)
    renamed = [{"red": "z", "green": "", "blue": "m"}[label] for label in labels]
    assert score_clusters(vectors, labels, seed=1) == score_clusters(vectors, renamed, seed=1)


def test_the_same_seed_gives_the_same_scores() -> None:
    vectors, labels = _groups(0.6)
    assert score_clusters(vectors, labels, 4) == score_clusters(vectors.copy(), labels, 4)


def test_vectors_that_are_all_equal_are_one_cluster() -> None:
    scores = score_clusters(np.ones((7, 3)), ["a", "b", "b", "b", "b", "c", "c"], seed=0)
    assert scores.accuracy == pytest.approx(4 / 7)
    assert scores.adjusted_rand == pytest.approx(0)


def test_texts_about_two_things_are_told_apart_by_their_words() -> None:
    texts = [
        "a cat and a dog",
        "the dog bit the cat",
        "cat food",
        "stocks fell",
        "stocks and bonds",
    ]
    scores = score_clusters(bag_of_words_vectors(texts), ["pets"] * 3 + ["money"] * 2, seed=0)
    assert scores.accuracy == 1


def test_a_text_without_words_is_a_row_of_zeros() -> None:
    assert bag_of_words_vectors(["cat", "?"]).toarray().tolist() == [[1], [0]]
    assert bag_of_words_vectors(["?", "the"]).toarray().tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("vectors", "labels", "message"),
    [
        (np.ones((5, 2)), ["a", "b"], "vectors of shape (5, 2) for 2 labels; expected (2, D)"),
        (np.ones(2), ["a", "b"], "vectors of shape (2,) for 2 labels"),
        (np.ones((2, 3)), ["a", "a"], 'all have the label "a"'),
        (np.ones((0, 3)), [], "there are none"),
        (np.full((2, 3), np.nan), ["a", "b"], "not finite"),
    ],
)
def test_what_cannot_be_clustered_says_why(
    vectors: np.ndarray, labels: Sequence[str], message: str
) -> None:
    with pytest.raises(DataError) as error:
        score_clusters(vectors, labels, seed=0)
    assert message in str(error.value)


def test_the_quoted_figure_for_titles_lies_within_the_spread_of_the_seeds(shared: Path) -> None:
    folder = shared / "data" / "stackoverflow"
    titles, labels = (
        (folder / f"{name}_StackOverflow.txt").read_text("utf-8").split("\n")[:20_000:20]
        for name in ("title", "label")
    )
    vectors = bag_of_words_vectors(titles)
    accuracies = [score_clusters(vectors, labels, seed).accuracy for seed in range(10)]
    # The quoted 0.671 is one run of k-means; ten of ours reach from 0.587 to 0.673.
    assert np.mean(accuracies) == pytest.approx(0.628, abs=0.03)
    assert min(accuracies) < 0.671 < max(accuracies) + 0.02
