"""What counting words alone would answer: the baseline that a classifier has to beat.

TF-IDF of words and pairs of neighbouring words, then logistic regression. The settings are those
behind the commonly quoted figures for SST-2, TREC and Banking77; they are the same for all data.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from qkv.errors import DataError

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
    vectorizer = fit_vectorizer(train_texts) if len(labels) > 1 else None
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
