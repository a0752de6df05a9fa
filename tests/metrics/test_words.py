"""The bag-of-words baseline: what it learns, what it survives, and its published figures."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from qkv.errors import DataError
from qkv.metrics import bag_of_words, score_labels

TEXTS = ["a fine film", "a fine and funny film", "a dull film", "dull and long", "what fun, fine"]
LABELS = ["good", "good", "bad", "bad", "good"]


def test_a_word_that_marks_a_label_is_learned() -> None:
    guessed = bag_of_words(TEXTS, LABELS, ["so dull", "fine acting", "DULL"])
    assert guessed == ["bad", "good", "bad"]


def test_two_words_in_order_tell_more_than_each_alone() -> None:
    texts = ["not good but bad", "not bad but good"] * 3
    guessed = bag_of_words(texts, ["bad", "good"] * 3, texts[:2])
    assert guessed == ["bad", "good"]


@pytest.mark.parametrize("nothing", ["", "?!", "☃", " \n"])
def test_texts_without_words_get_the_most_frequent_label(nothing: str) -> None:
    assert bag_of_words([nothing] * 5, LABELS, ["fine", nothing]) == ["good", "good"]


def test_a_test_text_without_words_gets_some_label() -> None:
    assert bag_of_words(TEXTS, LABELS, [""])[0] in LABELS


def test_one_label_is_always_the_answer() -> None:
    assert bag_of_words(["one text"], ["only"], ["another", ""]) == ["only", "only"]


def test_one_example_for_each_of_many_labels_is_enough() -> None:
    texts = [f"common word{number} text" for number in range(77)]
    labels = [f"label {number}" for number in range(77)]
    assert bag_of_words(texts, labels, texts) == labels


def test_many_texts_that_share_no_word_still_teach() -> None:
    texts = [f"word{number}" for number in range(1009)]
    labels = ["even" if number % 2 == 0 else "odd" for number in range(1009)]
    assert bag_of_words(texts, labels, texts[:5]) == labels[:5]


def test_labels_come_back_unchanged() -> None:
    labels = ["a\0", "a", "ä " * 40]
    assert bag_of_words(["one", "two", "six"], labels, ["one", "two", "six"]) == labels


def test_no_test_texts_give_no_answers() -> None:
    assert bag_of_words(TEXTS, LABELS, []) == []


def test_unequal_lengths_and_no_texts_say_so() -> None:
    with pytest.raises(DataError, match="5 training texts but 2 labels"):
        bag_of_words(TEXTS, LABELS[:2], [])
    with pytest.raises(DataError, match="no training texts"):
        bag_of_words([], [], ["a"])


def _tabbed(path):
    return [line.rsplit("\t", 1) for line in path.read_text("utf-8").split("\n") if line]


def _labels_first(path):
    lines = path.read_text("utf-8", errors="replace").split("\n")
    return [line.split(" ", 1)[::-1] for line in lines if line]


def _with_header(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "train", "test", "published"),
    [
        (_tabbed, "sst2/train.tsv", "sst2/test.tsv", 0.813),
        (_labels_first, "trec/TREC.train.all", "trec/TREC.test.all", 0.890),
        (_with_header, "banking77/train.csv", "banking77/test.csv", 0.889),
    ],
)
def test_the_quoted_figures_come_out(
    shared: Path, read: Callable, train: str, test: str, published: float
) -> None:
    texts, labels = zip(*read(shared / "data" / train), strict=True)
    asked, truth = zip(*read(shared / "data" / test), strict=True)
    guessed = bag_of_words(texts, labels, asked)
    scores = score_labels(truth, guessed, sorted(set(labels)))
    assert scores.accuracy == pytest.approx(published, abs=0.002)
