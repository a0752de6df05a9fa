"""How likely each label of a text is if words are only counted.

Two ways of counting that err differently, and their mean: logistic regression on TF-IDF, and
naive Bayes on which words are there at all.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.measure.words import fit_regression, fit_vectorizer

FOLDS = 10  # parts the texts are dealt into; each is answered by what the others teach

Shares = NDArray[np.float32]


class WordCounts:
    """What was counted in some texts; numbers (texts,): the label of each, below `labels`."""

    def __init__(self, texts: Sequence[str], numbers: NDArray[np.int64], labels: int) -> None:
        self.labels = labels
        self.known, counts = np.unique(numbers, return_counts=True)
        self.frequent = counts / max(1, len(numbers))
        self.vectorizer = fit_vectorizer(texts) if len(self.known) > 1 else None
        if self.vectorizer is not None:
            self.regression = fit_regression(self.vectorizer.transform(texts), numbers)
            self.there, self.bayes = _fit_naive_bayes(texts, numbers)

    def shares(self, texts: Sequence[str]) -> Shares:
        """How likely each label is for each text, (texts, labels); the rows add up to 1.

        Where there was nothing to count, the frequencies of the labels; without any label, all
        are alike.
        """
        shares = np.zeros((len(texts), self.labels), np.float32)
        if not len(self.known):
            shares += 1 / self.labels
        elif self.vectorizer is None or not texts:
            shares[:, self.known] = self.frequent
        else:
            weighed = self.regression.predict_proba(self.vectorizer.transform(texts))
            found = self.bayes.predict_proba(self.there.transform(texts))
            shares[:, self.known] = (weighed + found) / 2
        return shares


def counted_by_others(
    texts: Sequence[str], numbers: NDArray[np.int64], labels: int, seed: int
) -> Shares:
    """The shares of each text, (texts, labels), by what was counted in other texts only."""
    dealt = np.random.default_rng(seed).permutation(len(texts)) % FOLDS
    shares = np.zeros((len(texts), labels), np.float32)
    for fold in range(FOLDS):
        asked, others = np.flatnonzero(dealt == fold), np.flatnonzero(dealt != fold)
        counts = WordCounts([texts[i] for i in others.tolist()], numbers[others], labels)
        shares[asked] = counts.shares([texts[i] for i in asked.tolist()])
    return shares


def _fit_naive_bayes(texts: Sequence[str], numbers: NDArray[np.int64]) -> tuple[Any, Any]:
    """What finds the words and marks of a text, and what they say of its label."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        CountVectorizer,
    )
    from sklearn.naive_bayes import MultinomialNB  # type: ignore[import-untyped]

    there = CountVectorizer(binary=True, token_pattern=r"(?u)\w+|[^\w\s]")
    return there, MultinomialNB().fit(there.fit_transform(texts), numbers)
