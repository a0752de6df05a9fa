"""What a cluster is called: the words that set its texts apart from all others.

Class TF-IDF (Grootendorst 2022): all texts of a cluster count as one document. With one change:
of a word's share in the cluster, its share in all texts is taken off. So a word that is frequent
everywhere falls out by itself, in any language, without a list of such words. A word counts once
a text, however often it stands in it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.engine.cluster.centres import Labels, members
from qkv.engine.cluster.words import counted_words

WORDS = 3  # in a name
CHARACTERS = 40  # of a text that has to serve as one


def names(texts: Sequence[str], labels: Labels, count: int, medoids: Sequence[str]) -> list[str]:
    """A name for each of the clusters 0 … count − 1; other labels are not looked at.

    A cluster without any word is named by its medoid.
    """
    words, counts = _counted(texts, labels, count)
    scores = _scores(counts) if len(words) else [np.zeros(0)] * count
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

    vectorizer = CountVectorizer(analyzer=counted_words, binary=True)
    try:
        docs = vectorizer.fit_transform(texts)  # (n, words)
    except ValueError:  # scikit-learn's word for an empty vocabulary
        return [], None
    return list(vectorizer.get_feature_names_out()), (members(labels, count) @ docs).tocsr()
