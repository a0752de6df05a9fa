"""From texts and their vectors to named clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Regex
from tokenizers.pre_tokenizers import PreTokenizer, Split

from qkv.engine.cluster.choose_k import KSelection, Tried, choose_k, hdbscan_labels
from qkv.engine.cluster.kmeans import (
    Labels,
    Vectors,
    centroids_of,
    fit_centroids,
    members,
    nearest_centroids,
    normalize,
)
from qkv.errors import DataError, UsageError, unknown

# FOLDED engine/cluster/clustering: What was found: the cluster of each text, how far it lies
#   from the centre, and what each is.
# FOLDED engine/cluster/words: Where words stand in a text, in any script: letters with their
#   combining marks and digits.
#
#   Chinese, Japanese, Thai and their neighbours write without spaces. There each character
#   stands
#   alone, or, where words are counted, two characters beside each other stand in for a word.
# FOLDED engine/cluster/naming: What a cluster is called: the words that set its texts apart
#   from all others.
#
#   Class TF-IDF (Grootendorst 2022): all texts of a cluster count as one document. With one
#   change:
#   of a word's share in the cluster, its share in all texts is taken off. So a word that is
#   frequent
#   everywhere falls out by itself, in any language, without a list of such words. A word
#   counts once
#   a text, however often it stands in it.
# FOLDED engine/cluster/describe: What a division of texts amounts to: sizes, centres,
#   distances, medoids, names, outliers.

OUTLIERS = -1  # the id of the texts that belong nowhere


@dataclass(frozen=True)
class Cluster:
    """Texts that belong together; the largest has the id 0."""

    id: int
    size: int
    name: str  # its distinctive words
    medoid: str  # the text nearest its centre
    nearest: tuple[int, ...]  # the numbers of a few texts, the medoid's first

    def json(self) -> dict[str, object]:
        return {"id": self.id, "size": self.size, "name": self.name, "medoid": self.medoid}


@dataclass(frozen=True, eq=False)
class Clustering:
    """A cluster for each text, in the order the texts were given.

    The distance is 1 − cosine to the centre of the text's cluster: 0 is the centre itself. Of a
    text that belongs nowhere it is that to the nearest centre.
    """

    texts: Sequence[str]
    labels: Labels  # (n,), the id of each text's cluster
    distances: NDArray[np.float64]  # (n,)
    clusters: tuple[Cluster, ...]  # by id, the outliers last
    outliers: tuple[int, ...]  # the numbers of texts that lie far out, the farthest first
    method: str
    stability: Mapping[int, float] = field(default_factory=dict)  # of each k tried, if k was chosen
    warnings: tuple[str, ...] = ()

    @property
    def num_clusters(self) -> int:
        """How many clusters there are, the outliers not counted."""
        return sum(each.id != OUTLIERS for each in self.clusters)

    def name_of(self, label: int) -> str:
        """The name of the cluster with this id."""
        return self.clusters[label].name  # -1, the outliers, is the last

    def row(self, number: int) -> dict[str, object]:
        """One text with its cluster and distance."""
        label = int(self.labels[number])
        distance = float(self.distances[number])
        return {"text": self.texts[number], "cluster": label, "distance": round(distance, 6)}


UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"

LETTERS = rf"[\p{{L}}\p{{M}}\p{{N}}&&[^{UNSPACED}]]"

WORD = rf"{LETTERS}+(?:['’]{LETTERS}+)*"

SIGN = r"[^\s\p{L}\p{M}\p{N}]"

Span = tuple[int, int]


def word_spans(text: str) -> list[Span]:
    """Each word, each character without spaces around it, and each sign: (first, after last)."""
    return [span for _, span in _cut(rf"{WORD}|[{UNSPACED}]|{SIGN}").pre_tokenize_str(text)]


def tokens_by_word(text: str, tokens: Sequence[Span]) -> list[tuple[Span | None, list[int]]]:
    """The tokens (by the characters each covers) that share a word, in order.

    Each group with all the characters of its words; a token may cover several. Tokens that cover
    no word, but a space or nothing at all, go with the word after them; None is the span of those
    behind the last word.
    """
    found: list[tuple[Span | None, list[int]]] = []
    words = word_spans(text)
    word = 0
    for at, (start, end) in enumerate(tokens):
        while word < len(words) and words[word][1] <= start:
            word += 1
        after = word
        while after < len(words) and words[after][0] < end:
            after += 1
        if after > word:
            span = (words[word][0], words[after - 1][1])
        else:
            span = None
        before, group = found[-1] if found else ((0, 0), [])
        if before is None:
            found[-1] = (span, [*group, at])
        elif span and span[0] < before[1]:
            found[-1] = ((before[0], max(before[1], span[1])), [*group, at])
        else:
            found.append((span, [at]))
    return found


def cluster_terms(text: str) -> list[str]:
    """What a text is counted by, in lower case: words of two characters or more, no numbers."""
    lower = text.lower()
    words = [word for word, _ in _cut(WORD).pre_tokenize_str(lower)]
    found = [word for word in words if len(word) > 1 and not word.isnumeric()]
    for run, _ in _cut(f"[{UNSPACED}]+").pre_tokenize_str(lower):
        found += [run[i : i + 2] for i in range(max(1, len(run) - 1))]
    return found


@cache
def _cut(pattern: str) -> PreTokenizer:
    """Gives the parts of a text that match, and leaves out the others."""
    return Split(Regex(pattern), "removed", invert=True)


WORDS = 3  # in a name

CHARACTERS = 40  # of a text that has to serve as one


def cluster_names(
    texts: Sequence[str], labels: Labels, count: int, medoids: Sequence[str]
) -> list[str]:
    """A name for each of the clusters 0 … count − 1; other labels are not looked at.

    A cluster without any word is named by its medoid.
    """
    words, counts = _counted(texts, labels, count)
    if len(words):
        scores = _scores(counts)
    else:
        scores = [np.zeros(0)] * count
    found = []
    for row, medoid in zip(scores, medoids, strict=True):
        best = np.argsort(-row, kind="stable")[:WORDS]
        name = ", ".join(words[i] for i in best if row[i] > 0)
        found.append(name or " ".join(medoid.split())[:CHARACTERS] or "blank")
    return found


def _scores(counts: Any) -> list[NDArray[np.float64]]:
    """How well each word names each cluster, (words,) for one after the other."""
    overall = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()  # (words,)
    rarity = np.log1p(overall.sum() / max(1, counts.shape[0]) / np.maximum(1, overall))
    usual = overall / max(1.0, overall.sum())
    found = []
    for row in counts:
        own = np.asarray(row.todense(), dtype=np.float64).ravel()
        share = own / max(1.0, own.sum())
        excess = np.where(own > 0, share - usual, 0.0)
        # All texts in one cluster: nothing sets a word apart, so its frequency has to do.
        found.append((excess if (excess > 1e-12).any() else share) * rarity)
    return found


def _counted(texts: Sequence[str], labels: Labels, count: int) -> tuple[list[str], Any]:
    """The words, and in how many texts of each cluster each one stands: (count, words)."""
    from sklearn.feature_extraction.text import CountVectorizer  # type: ignore[import-untyped]

    vectorizer = CountVectorizer(analyzer=cluster_terms, binary=True)
    try:
        docs = vectorizer.fit_transform(texts)  # (n, words)
    except ValueError:  # scikit-learn's word for an empty vocabulary
        return [], None
    return list(vectorizer.get_feature_names_out()), (members(labels, count) @ docs).tocsr()


TYPICAL = 5  # texts kept for each cluster

FENCE = 1.5  # Tukey's: so many times the distance between the quartiles beyond the third

Distances = NDArray[np.float64]


def described(
    texts: Sequence[str], vectors: Vectors, labels: Labels, method: str, choice: KSelection
) -> Clustering:
    """The clusters numbered by size, with all that is said of them; −1 are outliers."""
    labels = _by_size(labels)
    count = int(labels.max()) + 1
    distances = _distances(vectors, labels, count)
    ids = [*range(count), *([OUTLIERS] if (labels == OUTLIERS).any() else [])]
    near = {each: _nearest(labels, distances, each) for each in ids}
    medoids = {each: texts[near[each][0]] for each in ids}
    called = cluster_names(texts, labels, count, [medoids[each] for each in range(count)])
    clusters = tuple(
        Cluster(
            id=each,
            size=int((labels == each).sum()),
            name=called[each] if each != OUTLIERS else "outliers",
            medoid=medoids[each],
            nearest=near[each],
        )
        for each in ids
    )
    far = _far_out(labels, distances)
    warnings = _remarks(count, choice)
    return Clustering(texts, labels, distances, clusters, far, method, choice.stability, warnings)


def _by_size(labels: Labels) -> Labels:
    """Numbered anew, the largest cluster first; of equal ones that whose first text is first."""
    found, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    real = np.flatnonzero(found >= 0)
    order = real[np.lexsort((first[real], -sizes[real]))]
    numbers = np.full(len(found), OUTLIERS)
    numbers[order] = np.arange(len(order))
    return np.asarray(numbers[np.searchsorted(found, labels)], np.int64)


def _distances(vectors: Vectors, labels: Labels, count: int) -> Distances:
    """1 − cosine to the text's own centre; of an outlier to the nearest one, if there is any."""
    if count:
        centres = centroids_of(vectors, labels, count)
    else:
        centres = normalize(vectors.mean(axis=0)[None])
    own = np.where(labels == OUTLIERS, nearest_centroids(vectors, centres)[0], labels)
    cosines = np.empty(len(vectors))
    for each in range(len(centres)):
        inside = np.flatnonzero(own == each)
        cosines[inside] = vectors[inside] @ centres[each]
    return np.asarray(np.clip(1 - cosines, 0, 2), np.float64)


def _nearest(labels: Labels, distances: Distances, label: int) -> tuple[int, ...]:
    """The numbers of the texts nearest the centre, of equally near ones the first."""
    inside = np.flatnonzero(labels == label)
    return tuple(inside[np.argsort(distances[inside], kind="stable")[:TYPICAL]].tolist())


def _far_out(labels: Labels, distances: Distances) -> tuple[int, ...]:
    """Texts that belong nowhere, or lie beyond Tukey's fence in their cluster; farthest first."""
    far = labels == OUTLIERS
    for label in range(int(labels.max()) + 1):
        inside = labels == label
        low, high = np.quantile(distances[inside], [0.25, 0.75])
        far |= inside & (distances > high + FENCE * max(high - low, 1e-6))
    numbers = np.flatnonzero(far)
    return tuple(numbers[np.argsort(-distances[numbers], kind="stable")].tolist())


def _remarks(count: int, choice: KSelection) -> tuple[str, ...]:
    said = [choice.remark] if choice.remark else []
    if not count:
        said.append("no cluster was found: all texts are outliers; try --method kmeans")
    elif choice.k is not None and count < choice.k:
        said.append(f"{count} clusters instead of {choice.k}: other texts have equal vectors")
    return tuple(said)


Method = Literal["kmeans", "hdbscan"]

METHODS: tuple[Method, ...] = get_args(Method)

FEWEST = 4  # different texts among which a number of clusters can be looked for

ALIKE = 1e-6  # vectors that differ by less than this are the same


def cluster(
    texts: Sequence[str],
    vectors: ArrayLike,
    *,
    k: int | None = None,
    method: Method = "kmeans",
    seed: int = 0,
    on_candidate: Tried = lambda k, stability: None,
) -> Clustering:
    """Groups of texts whose vectors (n, D) point the same way; the same seed, the same groups.

    k-means makes k of them, or as many as two samples agree on; `tried` is told the stability of
    each number that was tried. HDBSCAN finds their number itself and leaves outliers over.
    """
    check_cluster_args(texts, k, method)
    given = _checked(texts, vectors)
    choice = KSelection(k)
    if np.abs(given - given[0]).max() < ALIKE:
        if len(texts) > 1:
            said = "all vectors are the same, so there is one cluster"
        else:
            said = ""
        labels = np.zeros(len(texts), np.int64)
        choice = KSelection(1, {}, said)
    elif method == "hdbscan":
        labels = hdbscan_labels(given, seed)
    else:
        if k is None:
            choice = _chosen(texts, given, seed, on_candidate)
        else:
            choice = choice
        labels = _divided(given, choice, seed)
    return described(texts, given, labels, method, choice)


def check_cluster_args(texts: Sequence[str], k: int | None, method: str) -> None:
    """Refuse a number of clusters that cannot be, before any work is done."""
    if method not in METHODS:
        raise UsageError(unknown("method", method, METHODS))
    if not len(texts):
        raise DataError("there are no texts to cluster; give at least one")
    if k is None:
        return
    if method == "hdbscan":
        raise UsageError(f"hdbscan finds the number of clusters itself; leave k={k} out")
    different = len(set(texts))
    if not 1 <= k <= different:
        raise UsageError(
            f"k={k} clusters cannot be made of {len(texts):,} texts, {different:,} of them "
            f"different; ask for 1 to {different:,}"
        )


def _divided(vectors: Vectors, choice: KSelection, seed: int) -> Labels:
    assert choice.k is not None
    return nearest_centroids(vectors, fit_centroids(vectors, choice.k, seed))[0]


def _chosen(texts: Sequence[str], vectors: Vectors, seed: int, on_candidate: Tried) -> KSelection:
    """How many clusters the different texts have: one that is repeated says nothing new."""
    first = {text: number for number, text in reversed(list(enumerate(texts)))}
    if len(first) < FEWEST:
        said = f"{len(first)} different texts are too few to look for groups in; say how many: -k"
        return KSelection(1, {}, said)
    return choose_k(vectors[sorted(first.values())], seed, on_candidate)


def _checked(texts: Sequence[str], vectors: ArrayLike) -> Vectors:
    """The vectors at length 1."""
    given = np.asarray(vectors, np.float32)
    if given.ndim != 2 or len(given) != len(texts) or not given.shape[1]:
        raise DataError(
            f"vectors of shape {given.shape} for {len(texts)} texts; expected ({len(texts)}, D), "
            "a row for each text"
        )
    if not np.isfinite(given).all():
        at = int(np.flatnonzero(~np.isfinite(given).all(axis=1))[0])
        raise DataError(f"the vector of text {at + 1} holds numbers that are not finite")
    return normalize(given)
