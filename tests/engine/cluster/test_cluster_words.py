"""Words in any script, and the names made of them."""

import numpy as np
import pytest

from qkv.engine.cluster.clustering import cluster_names, cluster_terms, tokens_by_word, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, now!", ["Don't", "stop", ",", "now", "!"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("abc漢字def", ["abc", "漢", "字", "def"]),
        ("  ", []),
        ("naïve\u0301 42nd", ["naïve\u0301", "42nd"]),
        ("안녕 세계", ["안녕", "세계"]),
        ("'quoted'", ["'", "quoted", "'"]),
    ],
)
def test_words_are_found_in_any_script(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_counted_words_are_lower_case_without_numbers_signs_and_single_letters() -> None:
    assert cluster_terms("A Fish, 12 FISH & x9") == ["fish", "fish", "x9"]
    assert cluster_terms("東京都 is big") == ["is", "big", "東京", "京都"]
    assert cluster_terms("鳥") == ["鳥"]
    assert cluster_terms("!? 7") == []


def test_tokens_that_share_a_word_are_joined_and_a_space_goes_with_the_word_behind_it() -> None:
    text = "un do  it漢"
    tokens = [(0, 1), (1, 2), (2, 5), (5, 6), (6, 7), (7, 9), (9, 10), (9, 10)]
    assert tokens_by_word(text, tokens) == [
        ((0, 2), [0, 1]),
        ((3, 5), [2]),
        ((7, 9), [3, 4, 5]),
        ((9, 10), [6, 7]),
    ]
    assert tokens_by_word("a  ", [(0, 1), (1, 2), (2, 3)]) == [((0, 1), [0]), (None, [1, 2])]


def test_a_token_over_two_words_makes_them_one() -> None:
    assert tokens_by_word("of the sea", [(0, 1), (1, 6), (6, 10)]) == [
        ((0, 6), [0, 1]),
        ((7, 10), [2]),
    ]


def test_frequent_words_fall_out_without_a_list_of_them() -> None:
    texts = ["the cat and the hat", "the cat and a mat", "the dog and the log", "the dog and a bog"]
    names = cluster_names(texts, np.array([0, 0, 1, 1]), 2, ["", ""])
    assert [name.split(", ")[0] for name in names] == ["cat", "dog"]
    assert not {"the", "and"} & set(", ".join(names).split(", "))


def test_stop_words_never_name_a_cluster_not_even_one_without_other_words() -> None:
    texts = ["how do i", "what's this", "don't do it", "why isn't it so", "red fish", "red bird"]
    labels = np.array([0, 0, 0, 0, 1, 1])
    names = cluster_names(texts, labels, 2, ["how do i", "red fish"])
    assert names[0] == "how do i"  # the medoid
    assert names[1].startswith("red")


def test_a_word_hardly_more_frequent_than_elsewhere_is_no_name_in_any_language() -> None:
    texts = ["der hund bellt", "der hund rennt", "der der wolf", "der wein schmeckt", "ein wein"]
    names = cluster_names(texts, np.array([0, 0, 0, 1, 1]), 2, ["", ""])
    assert "der" not in ", ".join(names).split(", ")


def test_a_language_without_spaces_is_named_by_pairs_of_characters() -> None:
    texts = ["東京は大きい", "東京に行く", "大阪は楽しい", "大阪に住む"]
    names = cluster_names(texts, np.array([0, 0, 1, 1]), 2, ["", ""])
    assert [name.split(", ")[0] for name in names] == ["東京", "大阪"]


def test_a_cluster_without_words_is_named_by_its_medoid() -> None:
    assert cluster_names(["!!", "fish"], np.array([0, 1]), 2, ["!!", "fish"]) == ["!!", "fish"]
    assert cluster_names(["!!", "?"], np.array([0, 1]), 2, ["!!", " "]) == ["!!", "blank"]


def test_labels_below_zero_are_not_looked_at() -> None:
    texts = ["red fish", "red bird", "blue noise"]
    (name,) = cluster_names(texts, np.array([0, 0, -1]), 1, [""])
    assert "noise" not in name
    assert "red" in name
