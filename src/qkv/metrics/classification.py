"""Accuracy, F1 and confusion of predicted labels, and the bag-of-words baselines to compare with.

The baseline is TF-IDF of words and word pairs with logistic regression; its settings are those
behind the commonly quoted figures for SST-2, TREC and Banking77, and the same for all data. Where
probabilities are needed they are the mean of that model and of naive Bayes on word presence, which
make different errors.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qkv.errors import DataError, unknown


@dataclass(frozen=True)
class LabelScore:
    """One label: how often it is right when guessed, how often it is found, and both in one."""

    precision: float
    recall: float
    f1: float
    count: int  # texts that truly have it


@dataclass(frozen=True)
class LabelScores:
    """All labels. The macro mean takes every label that occurs in the truth alike."""

    accuracy: float
    macro_f1: float
    per_label: Mapping[str, LabelScore]
    confusion: list[list[int]]  # a row for each true label, a column for each guessed one


def score_labels(
    truth: Sequence[str], guessed: Sequence[str], labels: Sequence[str]
) -> LabelScores:
    """The scores of guesses about texts with known labels; rows and columns as in `labels`.

    A label that is never guessed has precision 0, one that never occurs has recall 0.
    """
    _check(truth, guessed, labels)
    pairs = Counter(zip(truth, guessed, strict=True))
    confusion = [[pairs[true, guess] for guess in labels] for true in labels]
    per_label = {label: _score(confusion, at) for at, label in enumerate(labels)}
    occurring = [score.f1 for score in per_label.values() if score.count]
    right = sum(confusion[at][at] for at in range(len(labels)))
    return LabelScores(
        accuracy=right / len(truth),
        macro_f1=sum(occurring) / len(occurring),
        per_label=per_label,
        confusion=confusion,
    )


def _score(confusion: list[list[int]], at: int) -> LabelScore:
    right = confusion[at][at]
    count = sum(confusion[at])
    named = sum(row[at] for row in confusion)
    return LabelScore(
        precision=right / named if named else 0.0,
        recall=right / count if count else 0.0,
        f1=2 * right / (named + count) if named + count else 0.0,
        count=count,
    )


def _check(truth: Sequence[str], guessed: Sequence[str], labels: Sequence[str]) -> None:
    if len(truth) != len(guessed):
        raise DataError(f"{len(truth)} true labels but {len(guessed)} guesses; give one for each")
    if not truth:
        raise DataError("no labels to score; give at least one text with its label")
    known = set(labels)
    if len(known) != len(labels):
        twice = next(label for label, count in Counter(labels).items() if count > 1)
        raise DataError(f'label "{twice}" is listed twice; list each label once')
    for label in (*truth, *guessed):
        if label not in known:
            raise DataError(unknown("label", label, labels))


MANY_TEXTS = 1_000  # from so many on, a word that stands in one text only is left out

STRENGTH = 5.0  # scikit-learn's C: higher trusts the training texts more


def bag_of_words(
    train_texts: Sequence[str], train_labels: Sequence[str], test_texts: Sequence[str]
) -> list[str]:
    """A label for each test text, learned from the training texts.

    Where there is nothing to learn from, because no training text holds a word or all have one
    label, each answer is the most frequent training label.
    """
    if len(train_texts) != len(train_labels):
        raise DataError(
            f"{len(train_texts)} training texts but {len(train_labels)} labels; give one for each"
        )
    if not train_texts:
        raise DataError("no training texts; the bag-of-words baseline needs at least one")
    if not test_texts:
        return []
    labels = sorted(set(train_labels))
    most_frequent = Counter(train_labels).most_common(1)[0][0]
    if len(labels) > 1:
        vectorizer = fit_vectorizer(train_texts)
    else:
        vectorizer = None
    if vectorizer is None:
        return [most_frequent] * len(test_texts)
    number = {label: at for at, label in enumerate(labels)}
    regression = fit_regression(
        vectorizer.transform(train_texts), [number[label] for label in train_labels]
    )
    return [labels[at] for at in regression.predict(vectorizer.transform(test_texts))]


def fit_regression(vectors: Any, numbers: Any) -> Any:
    """A logistic regression that gives each vector the number of its label."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    regression = LogisticRegression(C=STRENGTH, max_iter=10_000)
    # Its many small products wait for each other: two threads took 37 times as long as one.
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        # One or two texts a label are few, not a mistake.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return regression.fit(vectors, numbers)


def fit_vectorizer(texts: Sequence[str]) -> Any:
    """The vectorizer that knows the words of the texts, or None if they hold no word at all."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

    for least in (2, 1) if len(texts) >= MANY_TEXTS else (1,):
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=least)
        try:
            return vectorizer.fit(texts)
        except ValueError:  # scikit-learn's word for an empty vocabulary
            continue
    return None


FOLDS = 10  # parts the texts are dealt into; each is answered by what the others teach

Probs = NDArray[np.float32]


class WordCountClassifier:
    """A classifier by word counts alone; numbers (texts,): the label index of each text."""

    def __init__(self, texts: Sequence[str], numbers: NDArray[np.int64], labels: int) -> None:
        self.labels = labels
        self.label_ids, counts = np.unique(numbers, return_counts=True)
        self.frequent = counts / max(1, len(numbers))
        if len(self.label_ids) > 1:
            self.vectorizer = fit_vectorizer(texts)
        else:
            self.vectorizer = None
        if self.vectorizer is not None:
            self.regression = fit_regression(self.vectorizer.transform(texts), numbers)
            self.word_presence, self.bayes = _fit_naive_bayes(texts, numbers)

    def predict_proba(self, texts: Sequence[str]) -> Probs:
        """How likely each label is for each text, (texts, labels); the rows add up to 1.

        Where there was nothing to count, the frequencies of the labels; without any label, all
        are alike.
        """
        probs = np.zeros((len(texts), self.labels), np.float32)
        if not len(self.label_ids):
            probs += 1 / self.labels
        elif self.vectorizer is None or not texts:
            probs[:, self.label_ids] = self.frequent
        else:
            by_regression = self.regression.predict_proba(self.vectorizer.transform(texts))
            by_bayes = self.bayes.predict_proba(self.word_presence.transform(texts))
            probs[:, self.label_ids] = (by_regression + by_bayes) / 2
        return probs


def out_of_fold_probs(
    texts: Sequence[str], numbers: NDArray[np.int64], labels: int, seed: int
) -> Probs:
    """Label probabilities of each text, (texts, labels), by classifiers fitted on other folds."""
    folds = np.random.default_rng(seed).permutation(len(texts)) % FOLDS
    probs = np.zeros((len(texts), labels), np.float32)
    for fold in range(FOLDS):
        inside = np.flatnonzero(folds == fold)
        others = np.flatnonzero(folds != fold)
        counts = WordCountClassifier([texts[i] for i in others.tolist()], numbers[others], labels)
        probs[inside] = counts.predict_proba([texts[i] for i in inside.tolist()])
    return probs


def _fit_naive_bayes(texts: Sequence[str], numbers: NDArray[np.int64]) -> tuple[Any, Any]:
    """What finds the words and marks of a text, and what they say of its label."""
    from sklearn.feature_extraction.text import (
        CountVectorizer,
    )
    from sklearn.naive_bayes import MultinomialNB  # type: ignore[import-untyped]

    there = CountVectorizer(binary=True, token_pattern=r"(?u)\w+|[^\w\s]")
    return there, MultinomialNB().fit(there.fit_transform(texts), numbers)
