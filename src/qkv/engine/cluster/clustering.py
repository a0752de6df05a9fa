"""Clusters of similar texts: their names, sizes, medoids and outliers.

Clusters are named by class TF-IDF (Grootendorst 2022): all texts of a cluster count as one
document. One change: the frequency of a word in all texts is subtracted from its frequency in the
cluster, so a word that is frequent everywhere drops out. English stop words never name a cluster,
and neither does, in any language, a word that is hardly more frequent in the cluster than in all
texts. A word counts once per text.

Words are found in any script: runs of letters, combining marks and digits. Chinese, Japanese, Thai
and related scripts are written without spaces; there each character is a word of its own, and
pairs of neighbouring characters are counted as terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Regex
from tokenizers.pre_tokenizers import PreTokenizer, Split

from qkv.engine.cluster.choose_k import Candidate, KSelection, OnCandidate, choose_k
from qkv.engine.cluster.hdbscan import hdbscan_labels
from qkv.engine.cluster.kmeans import (
    Labels,
    Vectors,
    centroids_of,
    fit_centroids,
    membership,
    nearest_centroids,
    normalize,
)
from qkv.errors import DataError, UsageError, unknown

Method = Literal["kmeans", "hdbscan"]

METHODS: tuple[Method, ...] = get_args(Method)

OUTLIERS = -1  # label of texts that belong to no cluster

MIN_TEXTS = 4  # distinct texts needed to choose a number of clusters

SAME_VECTOR = 1e-6  # vectors that differ by less than this are the same

NUM_TYPICAL = 5  # texts nearest the centroid that are listed for each cluster

TUKEY_FENCE = 1.5  # outliers lie this many interquartile ranges above the third quartile

NAME_WORDS = 3

MIN_LIFT = 1.5  # a name's word is so many times as frequent in its cluster as in all texts

# not in the list of scikit-learn
MORE_STOP_WORDS = frozenset(("did", "does", "doing", "having", "just", "let", "ll", "re", "ve"))

NAME_LENGTH = 40  # characters of a medoid that serves as a name

Distances = NDArray[np.float64]

Span = tuple[int, int]  # start, end


@dataclass(frozen=True)
class Cluster:
    """Texts that belong together; the largest cluster has id 0."""

    id: int
    size: int
    name: str  # its distinctive words
    medoid: str  # the text nearest its centroid
    nearest: tuple[int, ...]  # indices of the texts nearest the centroid, the medoid first

    def json(self) -> dict[str, object]:
        return {"id": self.id, "size": self.size, "name": self.name, "medoid": self.medoid}


@dataclass(frozen=True, eq=False)
class Clustering:
    """A cluster for each text, in the order of the texts.

    Distances are 1 − cosine to the centroid of the text's cluster; for a text that belongs to no
    cluster, to the nearest centroid.
    """

    texts: Sequence[str]
    labels: Labels  # (n,), the id of each text's cluster
    distances: Distances  # (n,)
    clusters: tuple[Cluster, ...]  # by id, the outliers last
    outliers: tuple[int, ...]  # indices of texts far from every centroid, farthest first
    method: str
    candidates: tuple[Candidate, ...] = ()  # each number compared, if k was chosen
    stability: float | None = None  # of the number chosen: how well two samples agree on it
    warnings: tuple[str, ...] = ()

    @property
    def num_clusters(self) -> int:
        """The number of clusters, without the outliers."""
        return sum(cluster.id != OUTLIERS for cluster in self.clusters)

    def selection_json(self) -> dict[str, object] | None:
        """Why there are as many clusters as there are; None where their number was not chosen."""
        if self.stability is None:
            return None
        return {
            "k": self.num_clusters,
            "stability": round(self.stability, 4),
            "candidates": [candidate.json() for candidate in self.candidates],
        }

    def name_of(self, label: int) -> str:
        """The name of the cluster with this id."""
        return self.clusters[label].name  # the outliers, -1, are the last

    def row(self, index: int) -> dict[str, object]:
        """One text with its cluster and distance."""
        label = int(self.labels[index])
        distance = float(self.distances[index])
        return {"text": self.texts[index], "cluster": label, "distance": round(distance, 6)}


def cluster(
    texts: Sequence[str],
    vectors: ArrayLike,
    *,
    k: int | None = None,
    method: Method = "kmeans",
    seed: int = 0,
    on_candidate: OnCandidate = lambda candidate: None,
) -> Clustering:
    """Clusters of texts whose vectors (n, D) point in similar directions, reproducible by seed.

    "kmeans" makes k clusters, or as many as are most clearly separated; `on_candidate` receives
    each number compared. "hdbscan" determines the number itself and leaves outliers.
    """
    check_cluster_args(texts, k, method)
    unit_vectors = _check_vectors(texts, vectors)
    selection = KSelection(k)
    if np.abs(unit_vectors - unit_vectors[0]).max() < SAME_VECTOR:
        warning = ""
        if len(texts) > 1:
            warning = "all vectors are the same, so there is one cluster"
        labels = np.zeros(len(texts), np.int64)
        selection = KSelection(1, warning=warning)
    elif method == "hdbscan":
        labels = hdbscan_labels(unit_vectors, seed)
    else:
        if k is None:
            selection = _select_k(texts, unit_vectors, seed, on_candidate)
        assert selection.k is not None
        centroids = fit_centroids(unit_vectors, selection.k, seed)
        labels = nearest_centroids(unit_vectors, centroids)[0]
    return describe(texts, unit_vectors, labels, method, selection)


def check_cluster_args(texts: Sequence[str], k: int | None, method: str) -> None:
    """Raise if these texts cannot be clustered this way, before they are embedded."""
    if method not in METHODS:
        raise UsageError(unknown("method", method, METHODS))
    if not len(texts):
        raise DataError("there are no texts to cluster; give at least one")
    if k is None:
        return
    if method == "hdbscan":
        raise UsageError(f"hdbscan finds the number of clusters itself; leave k={k} out")
    distinct = len(set(texts))
    if not 1 <= k <= distinct:
        raise UsageError(
            f"k={k} clusters cannot be made of {len(texts):,} texts, {distinct:,} of them "
            f"different; use 1 to {distinct:,}"
        )


def describe(
    texts: Sequence[str], vectors: Vectors, labels: Labels, method: str, selection: KSelection
) -> Clustering:
    """The clustering with these labels, clusters renumbered by size; label −1 means outlier."""
    labels = _renumber_by_size(labels)
    count = int(labels.max()) + 1
    distances = _centroid_distances(vectors, labels, count)
    ids = list(range(count))
    if (labels == OUTLIERS).any():
        ids.append(OUTLIERS)
    nearest = {id: _nearest_to_centroid(labels, distances, id) for id in ids}
    medoids = {id: texts[nearest[id][0]] for id in ids}
    names = dict(enumerate(cluster_names(texts, labels, count, [medoids[i] for i in range(count)])))
    names[OUTLIERS] = "outliers"
    clusters = []
    for id in ids:
        size = int((labels == id).sum())
        clusters.append(Cluster(id, size, names[id], medoids[id], nearest[id]))
    return Clustering(
        texts,
        labels,
        distances,
        tuple(clusters),
        _outliers(labels, distances),
        method,
        selection.candidates,
        selection.stability,
        _warnings(count, selection),
    )


def _check_vectors(texts: Sequence[str], vectors: ArrayLike) -> Vectors:
    """The vectors as float32 at length 1."""
    array = np.asarray(vectors, np.float32)
    if array.ndim != 2 or len(array) != len(texts) or not array.shape[1]:
        raise DataError(
            f"vectors of shape {array.shape} for {len(texts)} texts; expected ({len(texts)}, D), "
            "a row for each text"
        )
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise DataError(f"the vector of text {row + 1} holds numbers that are not finite")
    return normalize(array)


def _select_k(
    texts: Sequence[str], vectors: Vectors, seed: int, on_candidate: OnCandidate
) -> KSelection:
    """The number of clusters of the distinct texts: duplicates would only inflate agreement."""
    first_index: dict[str, int] = {}
    for i, text in enumerate(texts):
        first_index.setdefault(text, i)
    if len(first_index) < MIN_TEXTS:
        warning = f"{len(first_index)} different texts are too few to choose a number; set k"
        return KSelection(1, warning=warning)
    return choose_k(vectors[sorted(first_index.values())], seed, on_candidate)


def _renumber_by_size(labels: Labels) -> Labels:
    """The labels with the largest cluster as 0; ties in the order of their first texts."""
    ids, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    real = np.flatnonzero(ids >= 0)
    order = real[np.lexsort((first[real], -sizes[real]))]
    new_ids = np.full(len(ids), OUTLIERS)
    new_ids[order] = np.arange(len(order))
    return np.asarray(new_ids[np.searchsorted(ids, labels)], np.int64)


def _centroid_distances(vectors: Vectors, labels: Labels, count: int) -> Distances:
    """1 − cosine to the centroid of each text's cluster; for outliers to the nearest one."""
    if count:
        centroids = centroids_of(vectors, labels, count)
    else:
        centroids = normalize(vectors.mean(axis=0)[None])
    owners = np.where(labels == OUTLIERS, nearest_centroids(vectors, centroids)[0], labels)
    cosines = np.empty(len(vectors))
    for id, centroid in enumerate(centroids):
        members = np.flatnonzero(owners == id)
        cosines[members] = vectors[members] @ centroid
    # Rounding may put a cosine slightly above 1.
    return np.asarray(np.clip(1 - cosines, 0, 2), np.float64)


def _nearest_to_centroid(labels: Labels, distances: Distances, label: int) -> tuple[int, ...]:
    """The indices of a few texts, nearest first; ties in their order."""
    members = np.flatnonzero(labels == label)
    order = np.argsort(distances[members], kind="stable")
    return tuple(members[order[:NUM_TYPICAL]].tolist())


def _outliers(labels: Labels, distances: Distances) -> tuple[int, ...]:
    """Texts without a cluster, and those beyond Tukey's fence in theirs; farthest first."""
    far = labels == OUTLIERS
    for label in range(int(labels.max()) + 1):
        members = labels == label
        q1, q3 = np.quantile(distances[members], [0.25, 0.75])
        far |= members & (distances > q3 + TUKEY_FENCE * max(q3 - q1, 1e-6))
    indices = np.flatnonzero(far)
    return tuple(indices[np.argsort(-distances[indices], kind="stable")].tolist())


def _warnings(count: int, selection: KSelection) -> tuple[str, ...]:
    warnings = []
    if selection.warning:
        warnings.append(selection.warning)
    if not count:
        warnings.append('no cluster was found: all texts are outliers; try method="kmeans"')
    elif selection.k is not None and count < selection.k:
        warnings.append(
            f"{count} clusters instead of {selection.k}: other texts have equal vectors"
        )
    return tuple(warnings)


UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"

LETTERS = rf"[\p{{L}}\p{{M}}\p{{N}}&&[^{UNSPACED}]]"

WORD = rf"{LETTERS}+(?:['’]{LETTERS}+)*"

PUNCTUATION = r"[^\s\p{L}\p{M}\p{N}]"


def word_spans(text: str) -> list[Span]:
    """The span of each word, character of an unspaced script and punctuation mark."""
    splitter = _matches_of(rf"{WORD}|[{UNSPACED}]|{PUNCTUATION}")
    return [span for _, span in splitter.pre_tokenize_str(text)]


def tokens_by_word(text: str, tokens: Sequence[Span]) -> list[tuple[Span | None, list[int]]]:
    """The indices of the tokens of each word, with the span of the word, in order.

    tokens: the characters each token covers. A token may cover several words, which then form one
    group. Tokens that cover no word, only a space or nothing, go with the next word; those after
    the last word have the span None.
    """
    groups: list[tuple[Span | None, list[int]]] = []
    words = word_spans(text)
    word = 0
    for token, (start, end) in enumerate(tokens):
        while word < len(words) and words[word][1] <= start:
            word += 1
        after = word
        while after < len(words) and words[after][0] < end:
            after += 1
        span = None
        if after > word:
            span = (words[word][0], words[after - 1][1])
        if not groups:
            groups.append((span, [token]))
            continue
        previous, members = groups[-1]
        if previous is None:
            groups[-1] = (span, [*members, token])
        elif span and span[0] < previous[1]:
            groups[-1] = ((previous[0], max(previous[1], span[1])), [*members, token])
        else:
            groups.append((span, [token]))
    return groups


def cluster_terms(text: str) -> list[str]:
    """The lower-case terms of a text: words of two characters or more that are not numbers."""
    lower = text.lower()
    words = [word for word, _ in _matches_of(WORD).pre_tokenize_str(lower)]
    terms = [word for word in words if len(word) > 1 and not word.isnumeric()]
    for run, _ in _matches_of(f"[{UNSPACED}]+").pre_tokenize_str(lower):
        terms += [run[i : i + 2] for i in range(max(1, len(run) - 1))]
    return terms


def is_stop_word(word: str) -> bool:
    """Whether an English word tells nothing about a topic, such as "the", "how's" and "don't"."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        ENGLISH_STOP_WORDS,
    )

    stem, _, ending = word.replace("’", "'").partition("'")
    return stem in ENGLISH_STOP_WORDS or stem in MORE_STOP_WORDS or ending == "t"


@cache
def _matches_of(pattern: str) -> PreTokenizer:
    """Splits a text into the parts that match the pattern and drops the others."""
    return Split(Regex(pattern), "removed", invert=True)


def cluster_names(
    texts: Sequence[str], labels: Labels, count: int, medoids: Sequence[str]
) -> list[str]:
    """The distinctive words of each of the clusters 0 … count − 1; other labels are ignored.

    A cluster without words but stop words is named by its medoid.
    """
    words, counts = _document_counts(texts, labels, count)
    scores = [np.zeros(0)] * count
    if words:
        stop_words = np.array([is_stop_word(word) for word in words])
        scores = [np.where(stop_words, 0.0, row) for row in _class_tf_idf(counts)]
    names = []
    for row, medoid in zip(scores, medoids, strict=True):
        best = np.argsort(-row, kind="stable")[:NAME_WORDS]
        name = ", ".join(words[i] for i in best if row[i] > 0)
        names.append(name or " ".join(medoid.split())[:NAME_LENGTH] or "blank")
    return names


def _class_tf_idf(counts: Any) -> list[NDArray[np.float64]]:
    """How distinctive each word is of each cluster: a row (words,) for each."""
    overall = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()  # (words,)
    idf = np.log1p(overall.sum() / max(1, counts.shape[0]) / np.maximum(1, overall))
    overall_frequency = overall / max(1.0, overall.sum())
    rows = []
    for cluster_counts in counts:
        own = np.asarray(cluster_counts.todense(), dtype=np.float64).ravel()
        frequency = own / max(1.0, own.sum())
        excess = np.where(own > 0, frequency - overall_frequency, 0.0)
        distinctive = np.where(frequency >= MIN_LIFT * overall_frequency, excess, 0.0)
        if (distinctive > 1e-12).any():
            rows.append(distinctive * idf)
        elif (excess > 1e-12).any():
            rows.append(excess * idf)
        else:  # a single cluster: no word is distinctive, so the plain frequency is used
            rows.append(frequency * idf)
    return rows


def _document_counts(texts: Sequence[str], labels: Labels, count: int) -> tuple[list[str], Any]:
    """The vocabulary, and the number of texts of each cluster with each word: (count, words)."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=cluster_terms, binary=True)
    try:
        documents = vectorizer.fit_transform(texts)  # (n, words)
    except ValueError:  # raised by scikit-learn for an empty vocabulary
        return [], None
    words = list(vectorizer.get_feature_names_out())
    return words, (membership(labels, count) @ documents).tocsr()
