"""How many clusters there are, when nobody says."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_score  # type: ignore[import-untyped]
from tests.engine.cluster.planted import planted

from qkv.engine.cluster.choose_k import (
    Candidate,
    best_separated,
    candidate_numbers,
    choose_k,
    silhouette,
    stability,
)


def test_candidates_cover_the_whole_range_increasingly_far_apart() -> None:
    assert candidate_numbers(4) == [2]
    assert candidate_numbers(30) == [2, 3, 4, 5]
    assert candidate_numbers(1000)[-1] == 100
    many = candidate_numbers(10**6)
    assert many[-1] == 100
    assert many == sorted(set(many))
    assert len(many) < 40


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_the_planted_number_is_chosen_and_every_candidate_is_reported(groups: int) -> None:
    _, vectors, _ = planted(groups, each=37, seed=groups)
    candidates: list[Candidate] = []
    selection = choose_k(vectors, seed=0, on_candidate=candidates.append)
    assert selection.k == groups
    assert selection.warning == ""
    assert selection.stability == pytest.approx(1)
    assert selection.candidates == tuple(candidates)
    assert [each.k for each in candidates] == candidate_numbers(len(vectors))


def test_groups_of_groups_do_not_end_the_search_early() -> None:
    """Two directions far apart, eleven groups along them: 2 is the most stable number."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(41, 13)))[0].T
    centroids = np.array([axes[i % 2] * 0.6 + axes[2 + i] for i in range(11)])
    truth = np.repeat(np.arange(11), 29)
    vectors = centroids[truth] + 0.5 * rng.normal(size=(len(truth), 41)) / 41**0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert choose_k(vectors.astype(np.float32), seed=0).k == 11


@pytest.mark.parametrize(
    ("differences", "k"),
    [
        ({2: 0.01, 3: 0.2, 4: 0.1}, 3),
        ({19: 0.184, 21: 0.188, 27: 0.190}, 21),  # the smallest that is about as good
        ({2: -0.2, 3: -0.1, 4: -0.3}, 3),
        ({7: 0.4}, 7),
    ],
)
def test_the_smallest_number_close_to_the_best_is_taken(
    differences: dict[int, float], k: int
) -> None:
    candidates = [Candidate(k, value + 0.05, 0.05) for k, value in differences.items()]
    assert best_separated(candidates) == k


@pytest.mark.parametrize("clusters", [2, 7, 31])
def test_the_silhouette_is_that_of_scikit_learn_without_its_matrix(clusters: int) -> None:
    rng = np.random.default_rng(clusters)
    vectors = rng.normal(size=(97, 13)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels = rng.integers(clusters, size=97)
    expected = silhouette_score(vectors, labels, metric="cosine")
    assert silhouette(vectors, labels) == pytest.approx(expected, abs=1e-5)


def test_one_cluster_has_no_silhouette() -> None:
    assert silhouette(np.eye(5, dtype=np.float32), np.zeros(5, np.int64)) == 0


def test_stability_is_1_for_real_groups_and_near_0_for_none() -> None:
    _, vectors, _ = planted(groups=3, each=31, noise=0.2)
    assert stability(vectors, 3, seed=0) == pytest.approx(1)
    nothing = np.random.default_rng(0).normal(size=(499, 89)).astype(np.float32)
    nothing /= np.linalg.norm(nothing, axis=1, keepdims=True)
    assert abs(stability(nothing, 7, seed=0)) < 0.15
