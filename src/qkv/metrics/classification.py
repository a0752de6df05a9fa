"""Accuracy, F1 and confusion of predicted labels, and the bag-of-words baselines to compare with.

The baseline is TF-IDF of words and word pairs with logistic regression; its settings are those
behind the commonly quoted figures for SST-2, TREC and Banking77, and the same for all data. Where
probabilities are needed they are the mean of that model and of naive Bayes on word presence, which
make different errors.
"""

import math
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
    count: int  # texts whose true label it is


@dataclass(frozen=True)
class LabelScores:
    """All labels. The macro F1 is the unweighted mean over the labels that have true texts."""

    accuracy: float
    macro_f1: float
    per_label: Mapping[str, LabelScore]
    confusion: list[list[int]]  # rows: true labels, columns: predicted labels


def score_labels(
    truth: Sequence[str], guessed: Sequence[str], labels: Sequence[str]
) -> LabelScores:
    """The scores of guesses about texts with known labels; rows and columns as in `labels`.

    A label that is never predicted has precision 0, one without true texts has recall 0.
    """
    _check(truth, guessed, labels)
    pairs = Counter(zip(truth, guessed, strict=True))
    confusion = [[pairs[target, prediction] for prediction in labels] for target in labels]
    per_label = {label: _score(confusion, index) for index, label in enumerate(labels)}
    f1_scores = [score.f1 for score in per_label.values() if score.count]
    correct = sum(confusion[index][index] for index in range(len(labels)))
    return LabelScores(
        accuracy=correct / len(truth),
        macro_f1=sum(f1_scores) / len(f1_scores),
        per_label=per_label,
        confusion=confusion,
    )


NORMAL_QUANTILE_95 = 1.959964  # of a standard normal, within which 95 % lie


def wilson_interval(correct: int, total: int) -> tuple[float, float]:
    """The 95 % confidence interval of a fraction of `total` independent examples (Wilson 1927).

    Unlike the textbook interval it stays within 0 and 1, and is right for few examples.
    """
    if total < 1 or not 0 <= correct <= total:
        raise DataError(f"{correct} of {total} examples are right; no interval can be computed")
    z2 = NORMAL_QUANTILE_95**2
    fraction = correct / total
    center = (fraction + z2 / (2 * total)) / (1 + z2 / total)
    spread = math.sqrt(fraction * (1 - fraction) / total + z2 / (4 * total**2))
    half = NORMAL_QUANTILE_95 * spread / (1 + z2 / total)
    return max(0.0, center - half), min(1.0, center + half)


def _score(confusion: list[list[int]], index: int) -> LabelScore:
    true_positives = confusion[index][index]
    actual = sum(confusion[index])
    predicted = sum(row[index] for row in confusion)
    return LabelScore(
        precision=_ratio(true_positives, predicted),
        recall=_ratio(true_positives, actual),
        # 2TP / (2TP + FP + FN), the harmonic mean of precision and recall
        f1=_ratio(2 * true_positives, predicted + actual),
        count=actual,
    )


def _ratio(numerator: int, denominator: int) -> float:
    """The quotient, or 0 if the denominator is 0."""
    if denominator == 0:
        return 0.0
    return numerator / denominator


def _check(truth: Sequence[str], predictions: Sequence[str], labels: Sequence[str]) -> None:
    if len(truth) != len(predictions):
        raise DataError(
            f"{len(truth)} true labels but {len(predictions)} guesses; give one for each"
        )
    if not truth:
        raise DataError("no labels to score; give at least one text with its label")
    label_set = set(labels)
    if len(label_set) != len(labels):
        duplicate = next(label for label, count in Counter(labels).items() if count > 1)
        raise DataError(f'label "{duplicate}" is listed twice; list each label once')
    for label in (*truth, *predictions):
        if label not in label_set:
            raise DataError(unknown("label", label, labels))


MANY_TEXTS = 1_000  # with this many texts or more, words that occur in a single text are dropped

STRENGTH = 5.0  # scikit-learn's C, the inverse of the L2 penalty


def bag_of_words(
    train_texts: Sequence[str], train_labels: Sequence[str], test_texts: Sequence[str]
) -> list[str]:
    """A label for each test text, learned from the training texts.

    If no training text contains a word, or all have the same label, every prediction is the most
    frequent training label.
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
    label_index = {label: index for index, label in enumerate(labels)}
    targets = [label_index[label] for label in train_labels]
    regression = fit_regression(vectorizer.transform(train_texts), targets)
    return [labels[index] for index in regression.predict(vectorizer.transform(test_texts))]


def fit_regression(vectors: Any, numbers: Any) -> Any:
    """A logistic regression from vectors to `numbers`, the label index of each."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    regression = LogisticRegression(C=STRENGTH, max_iter=10_000)
    # Its many small products wait for each other: two threads took 37 times as long as one.
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        # One or two texts per label are few, but not a mistake.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return regression.fit(vectors, numbers)


def fit_vectorizer(texts: Sequence[str]) -> Any:
    """A TF-IDF vectorizer fitted on the texts, or None if they contain no word."""
    from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
        TfidfVectorizer,
    )

    document_frequencies = [1]
    if len(texts) >= MANY_TEXTS:
        document_frequencies = [2, 1]  # 1 in case no word occurs in two texts
    for min_df in document_frequencies:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=min_df)
        try:
            return vectorizer.fit(texts)
        except ValueError:  # raised by scikit-learn for an empty vocabulary
            continue
    return None


FOLDS = 10  # each fold is predicted by a classifier fitted on the others

Probs = NDArray[np.float32]


class WordCountClassifier:
    """A bag-of-words classifier; numbers (texts,): the label index of each text."""

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
        """Label probabilities of each text, (texts, labels); each row sums to 1.

        Without words to learn from they are the label frequencies; without training texts, uniform.
        """
        probs = np.zeros((len(texts), self.labels), np.float32)
        if not len(self.label_ids):
            probs += 1 / self.labels
        elif self.vectorizer is None or not texts:
            probs[:, self.label_ids] = self.frequent
        else:
            regression_probs = self.regression.predict_proba(self.vectorizer.transform(texts))
            bayes_probs = self.bayes.predict_proba(self.word_presence.transform(texts))
            probs[:, self.label_ids] = (regression_probs + bayes_probs) / 2
        return probs


def out_of_fold_probs(
    texts: Sequence[str], numbers: NDArray[np.int64], labels: int, seed: int
) -> Probs:
    """Label probabilities of each text, (texts, labels), by classifiers fitted on other folds."""
    folds = np.random.default_rng(seed).permutation(len(texts)) % FOLDS
    probs = np.zeros((len(texts), labels), np.float32)
    for fold in range(FOLDS):
        test = np.flatnonzero(folds == fold)
        train = np.flatnonzero(folds != fold)
        train_texts = [texts[i] for i in train.tolist()]
        test_texts = [texts[i] for i in test.tolist()]
        classifier = WordCountClassifier(train_texts, numbers[train], labels)
        probs[test] = classifier.predict_proba(test_texts)
    return probs


def _fit_naive_bayes(texts: Sequence[str], numbers: NDArray[np.int64]) -> tuple[Any, Any]:
    """A vectorizer for the presence of words and punctuation, and a naive Bayes model on it."""
    from sklearn.feature_extraction.text import (
        CountVectorizer,
    )
    from sklearn.naive_bayes import MultinomialNB  # type: ignore[import-untyped]

    vectorizer = CountVectorizer(binary=True, token_pattern=r"(?u)\w+|[^\w\s]")
    return vectorizer, MultinomialNB().fit(vectorizer.fit_transform(texts), numbers)
