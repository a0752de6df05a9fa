"""From texts and vectors to clusters: what was planted is found, and odd input gets an answer."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.cluster.planted import TOPICS, planted, same_division

from qkv.engine.cluster import OUTLIERS, cluster
from qkv.errors import DataError, UsageError


@pytest.mark.parametrize("k", [3, None])
def test_planted_clusters_are_found_with_and_without_their_number(k: int | None) -> None:
    texts, vectors, truth = planted(groups=3)
    clustering = cluster(texts, vectors, k=k)
    assert clustering.num_clusters == 3
    assert same_division(clustering.labels, truth)
    assert bool(clustering.candidates) == (k is None)
    assert (clustering.stability is not None) == (k is None)


def test_names_are_words_of_the_planted_topic_and_never_the_common_ones() -> None:
    texts, vectors, truth = planted(groups=5, each=19)
    clustering = cluster(texts, vectors, k=5)
    topics = list(TOPICS.values())
    for each in clustering.clusters:
        (group,) = {int(truth[i]) for i in each.nearest}
        assert set(each.name.split(", ")) <= set(topics[group])


def test_hdbscan_finds_the_planted_clusters_and_leaves_noise_over() -> None:
    texts, vectors, truth = planted(groups=4, each=41, noise=0.3)
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(17, vectors.shape[1]))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    odd = [f"odd {i}" for i in range(17)]
    clustering = cluster([*texts, *odd], [*vectors, *noise], method="hdbscan")
    assert clustering.num_clusters == 4
    members = clustering.labels[: len(texts)] != OUTLIERS
    assert members.mean() > 0.9
    assert same_division(clustering.labels[: len(texts)][members], truth[members])
    assert (clustering.labels[len(texts) :] == OUTLIERS).mean() > 0.4
    assert clustering.clusters[-1].id == OUTLIERS
    assert clustering.clusters[-1].name == "outliers"
    assert set(np.flatnonzero(clustering.labels == OUTLIERS)) <= set(clustering.outliers)


def test_of_many_texts_hdbscan_clusters_a_sample_and_the_others_join_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, vectors, truth = planted(groups=3, each=211, noise=0.3)
    monkeypatch.setattr("qkv.engine.cluster.hdbscan.SAMPLE_SIZE", 151)
    clustering = cluster(texts, vectors, method="hdbscan")
    members = clustering.labels != OUTLIERS
    assert clustering.num_clusters == 3
    assert members.mean() > 0.9
    assert same_division(clustering.labels[members], truth[members])


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 41), st.integers(1, 7))
def test_whatever_the_vectors_the_parts_fit_together(data: st.DataObject, n: int, D: int) -> None:
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    texts = [f"text {rng.integers(7)}" for _ in range(n)]
    vectors = rng.normal(size=(n, D)).round(1)
    k = data.draw(st.integers(1, len(set(texts))))
    clustering = cluster(texts, vectors, k=k, seed=seed)
    assert list(clustering.texts) == texts
    assert len(clustering.labels) == len(clustering.distances) == n
    assert 1 <= clustering.num_clusters <= k
    assert [each.id for each in clustering.clusters] == list(range(clustering.num_clusters))
    sizes = [each.size for each in clustering.clusters]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes == np.bincount(clustering.labels).tolist()
    unit = vectors / np.maximum(1e-12, np.linalg.norm(vectors, axis=1, keepdims=True))
    for each in clustering.clusters:
        members = np.flatnonzero(clustering.labels == each.id)
        middle = unit[members].mean(axis=0)
        far = 1 - unit[members] @ middle / max(1e-12, np.linalg.norm(middle))
        if np.linalg.norm(middle) > 1e-3:  # vectors that cancel out have no centre
            assert clustering.distances[members] == pytest.approx(far, abs=1e-3)
        assert set(each.nearest) <= set(members.tolist())
        assert each.medoid == texts[each.nearest[0]]
        assert clustering.distances[each.nearest[0]] == clustering.distances[members].min()


@pytest.mark.parametrize("method", ["kmeans", "hdbscan"])
def test_the_same_seed_gives_the_same_clusters(method: str) -> None:
    texts, vectors, _ = planted(groups=4, each=29, noise=1.5)
    one, other = (cluster(texts, vectors, method=method, seed=5) for _ in range(2))  # type: ignore[arg-type]
    assert one.labels.tolist() == other.labels.tolist()
    assert one.distances.tolist() == other.distances.tolist()
    assert one.clusters == other.clusters


def test_the_order_of_the_texts_does_not_decide_who_belongs_together() -> None:
    texts, vectors, _ = planted(groups=3)
    order = np.random.default_rng(2).permutation(len(texts))
    clustering = cluster(texts, vectors, k=3)
    permuted = cluster([texts[i] for i in order], vectors[order], k=3)
    assert same_division(clustering.labels[order], permuted.labels)


def test_one_text_is_one_cluster() -> None:
    clustering = cluster(["a lonely text"], np.ones((1, 5)))
    assert clustering.num_clusters == 1
    assert clustering.clusters[0].medoid == "a lonely text"
    assert clustering.distances[0] == pytest.approx(0, abs=1e-6)
    assert clustering.warnings == ()


@pytest.mark.parametrize("method", ["kmeans", "hdbscan"])
def test_equal_texts_are_one_cluster_and_it_says_so(method: str) -> None:
    clustering = cluster(["again"] * 23, np.full((23, 7), 0.5), method=method)  # type: ignore[arg-type]
    assert clustering.num_clusters == 1
    assert clustering.clusters[0].size == 23
    assert clustering.clusters[0].name == "again"
    assert "one cluster" in clustering.warnings[0]
    assert clustering.outliers == ()


def test_repeated_texts_weigh_nothing_when_the_number_is_looked_for() -> None:
    texts, vectors, truth = planted(groups=3, each=11)
    repeated = np.concatenate([np.arange(33), np.zeros(300, int)])
    clustering = cluster([texts[i] for i in repeated], vectors[repeated])
    assert clustering.num_clusters == 3
    assert same_division(clustering.labels[:33], truth)


def test_few_different_texts_stay_together_unless_asked() -> None:
    texts, vectors = ["a b", "c d", "e f"] * 5, np.tile(np.eye(3), (5, 1))
    clustering = cluster(texts, vectors)
    assert clustering.num_clusters == 1
    assert "3 different texts are too few" in clustering.warnings[0]
    assert same_division(cluster(texts, vectors, k=3).labels, np.tile([0, 1, 2], 5))


def test_k_of_one_is_one_cluster_named_by_its_most_frequent_words() -> None:
    clustering = cluster(["red fish", "blue fish", "fish"], np.eye(3), k=1)
    assert clustering.num_clusters == 1
    assert "fish" in clustering.clusters[0].name


def test_more_clusters_than_different_vectors_are_told() -> None:
    clustering = cluster(["One", "one", "two", "TWO"], [[1, 0], [1, 0], [0, 1], [0, 1]], k=3)
    assert clustering.num_clusters == 2
    assert "2 clusters instead of 3" in clustering.warnings[0]


def test_vectors_without_groups_say_that_no_number_is_stable() -> None:
    vectors = np.random.default_rng(0).normal(size=(101, 97))
    clustering = cluster([f"text {i}" for i in range(101)], vectors)
    assert "no number of clusters is stable" in clustering.warnings[0]


def test_texts_equally_far_from_each_other_are_all_outliers_with_hdbscan() -> None:
    clustering = cluster([f"text {i}" for i in range(13)], np.eye(13), method="hdbscan")
    assert clustering.num_clusters == 0
    assert [each.name for each in clustering.clusters] == ["outliers"]
    assert "no cluster was found" in clustering.warnings[0]


def test_a_text_far_from_its_centre_is_an_outlier() -> None:
    texts, vectors, _ = planted(groups=2, each=31, noise=0.1)
    odd = vectors[0] + 2 * np.linalg.svd(vectors)[2][-1]
    clustering = cluster([*texts, "odd"], [*vectors, odd / np.linalg.norm(odd)], k=2)
    assert clustering.outliers[0] == 62


WRONG = {
    "no texts": (([], np.ones((0, 3))), {}, "there are no texts"),
    "rows": ((["a", "b"], np.ones((3, 2))), {}, r"shape \(3, 2\) for 2 texts"),
    "nan": ((["a", "b"], [[1, 0], [float("nan"), 1]]), {}, "text 2 holds numbers that are not"),
    "k": ((["a", "b", "a"], np.eye(3)), {"k": 3}, "k=3 .* 3 texts, 2 of them different"),
    "zero": ((["a"], np.eye(1)), {"k": 0}, "k=0"),
    "both": ((["a"] * 3, np.eye(3)), {"k": 2, "method": "hdbscan"}, "leave k=2 out"),
    "few": ((["a", "b", "c"], np.eye(3)), {"method": "hdbscan"}, "3 texts are too few for hdbscan"),
    "method": ((["a"], np.eye(1)), {"method": "kmean"}, 'did you mean "kmeans"'),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_clustered_is_refused_in_one_sentence(case: str) -> None:
    args, options, message = WRONG[case]
    with pytest.raises((DataError, UsageError), match=message):
        cluster(*args, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"k": 11}, {"method": "hdbscan"}])
def test_twenty_thousand_texts_need_no_matrix_of_all_pairs(options: dict[str, object]) -> None:
    n = 20_000
    vectors = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    texts = [f"text {i % 97}" for i in range(n)]
    tracemalloc.start()
    cluster(texts, vectors, **options)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * n / 10  # bytes; all pairs would be 1,600 MB
