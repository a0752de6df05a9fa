"""Spherical k-means, beside scikit-learn's and by its own definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from tests.engine.cluster.planted import planted, same_division

from qkv.engine.cluster.kmeans import centroids_of, fit_centroids, nearest_centroids, normalize


def test_the_division_is_that_of_scikit_learn_where_there_is_one() -> None:
    _, vectors, _ = planted(groups=5, each=53)
    theirs = KMeans(5, n_init=10, random_state=0).fit_predict(vectors)
    ours, _ = nearest_centroids(vectors, fit_centroids(vectors, 5, seed=0))
    assert same_division(ours, theirs)


def test_the_sum_of_cosines_is_no_worse_than_scikit_learns() -> None:
    vectors = normalize(np.random.default_rng(3).normal(size=(997, 23)).astype(np.float32))
    theirs = KMeans(13, n_init=10, random_state=0).fit_predict(vectors)
    sums = [
        nearest_centroids(vectors, centroids)[1].sum()
        for centroids in (fit_centroids(vectors, 13, seed=0), centroids_of(vectors, theirs, 13))
    ]
    assert sums[0] > 0.99 * sums[1]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_nearest_is_the_largest_cosine_of_all(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, centroids = (normalize(rng.normal(size=(n, 11)).astype(np.float32)) for n in (37, k))
    labels, cosines = nearest_centroids(vectors, centroids)
    for vector, label, cosine in zip(vectors, labels, cosines, strict=True):
        similarities = [float(vector @ centroid) for centroid in centroids]
        assert cosine == pytest.approx(max(similarities), abs=1e-5)
        assert similarities[label] == pytest.approx(max(similarities), abs=1e-5)


def test_means_are_of_length_1_and_a_label_of_nobody_gives_zeros() -> None:
    vectors = normalize(np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32))
    centroids = centroids_of(vectors, np.array([0, 0, 2, 2, 2, -1, 0]), 4)
    expected = vectors[[0, 1, 6]].mean(axis=0)
    assert centroids[0] == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)
    assert np.linalg.norm(centroids, axis=1) == pytest.approx([1, 0, 1, 0], abs=1e-6)


def test_many_vectors_start_from_a_sample_and_end_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    _, vectors, truth = planted(groups=5, each=101)
    monkeypatch.setattr("qkv.engine.cluster.kmeans.SAMPLE_SIZE", 97)
    assert same_division(nearest_centroids(vectors, fit_centroids(vectors, 5, seed=0))[0], truth)


def test_as_many_centres_as_vectors_are_the_vectors() -> None:
    vectors = normalize(np.random.default_rng(0).normal(size=(11, 5)).astype(np.float32))
    labels, cosines = nearest_centroids(vectors, fit_centroids(vectors, 11, seed=0))
    assert sorted(labels) == list(range(11))
    assert cosines == pytest.approx(1, abs=1e-5)
