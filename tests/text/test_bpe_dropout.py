"""Words cut at random: what they spell stays the same, and the chances are those of the papers."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from qkv.errors import QkvError
from qkv.text import TOKENIZER_KINDS, Tokenizer
from qkv.text.bpe_dropout import DROPOUT_KINDS, WORDS_PER_CHUNK

SPECIAL = ["<pad>", "<unknown>", "<start>", "<end>", "<mask>"]
TEXTS = [
    "The cat sat on the mat, and the dog didn't; cats and dogs, the mats.\n" * 3,
    "  Zwei Hunde spielen im Schnee;\tes ist kalt: −3 °C. Hundehütten, Schneehunde.\r\n" * 2,
    "naïve café, e\u0301 and é, 日本語 and 👩‍👩‍👧, 1234567890\n",
    "a" * 70 + " " * 30 + "-" * 20,
]
PARTS = [
    *SPECIAL,
    " the",
    " cats",
    "Hunde",
    " Schneehund",
    " ",
    "  ",
    "\n",
    "'s",
    "é",
    "日本",
    "👩‍👧",
    "##a",
    "Ġ",
]
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from(PARTS), max_size=12).map("".join),
)
Cut = tuple[int, ...]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: Tokenizer.train(kind, TEXTS, 400) for kind in TOKENIZER_KINDS}


def cut(tokenizer: Tokenizer, text: str, noise: float, seed: int = 0) -> list[int]:
    words = tokenizer.pre_tokenize(text)
    numbers = np.arange(len(words))
    ids, _ = tokenizer.subword_sampler(words).sample(numbers, noise, np.random.default_rng(seed))
    return ids.tolist()


def shares(tokenizer: Tokenizer, word: str, noise: float, count: int = 40_000) -> dict[Cut, float]:
    """How often that word gets which cut."""
    draws, numbers = np.random.default_rng(3), np.zeros(count, np.int32)
    ids, starts = tokenizer.subword_sampler([word]).sample(numbers, noise, draws)
    found = Counter(tuple(ids[a:b].tolist()) for a, b in pairwise(starts))
    return {pieces: times / count for pieces, times in found.items()}


def chances_of_merging(tokenizer: Tokenizer, word: str, noise: float) -> dict[Cut, float]:
    """BPE-dropout as the paper tells it, each chance worked out: the best merge that is not left
    out is done, and the word is finished once all of them are.
    """
    model = json.loads(tokenizer.to_json())["model"]
    ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
    states, chances = {tuple(word): 1.0}, Counter[Cut]()
    while states:
        (pieces, chance), *_ = states.items()
        del states[pieces]
        able = sorted((ranks[p], i) for i, p in enumerate(pairwise(pieces)) if p in ranks)
        for _, i in able:
            merged = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
            states[merged] = states.get(merged, 0.0) + chance * (1 - noise)
            chance *= noise
        chances[tuple(model["vocab"][piece] for piece in pieces)] += chance
    return dict(chances)


def chances_of_matching(
    tokenizer: Tokenizer, word: str, noise: float, start: int = 0
) -> dict[Cut, float]:
    """MaxMatch-dropout in the same way: the longest match that is not left out, or the shortest."""
    if start == len(word):
        return {(): 1.0}
    vocabulary = json.loads(tokenizer.to_json())["model"]["vocab"]
    prefix, rest, chances = "##" if start else "", 1.0, Counter[Cut]()
    stops = [i for i in range(start + 1, len(word) + 1) if prefix + word[start:i] in vocabulary]
    for stop in reversed(stops):
        taken = rest * (1 - noise if stop != stops[0] else 1.0)
        rest -= taken
        for after, chance in chances_of_matching(tokenizer, word, noise, stop).items():
            chances[vocabulary[prefix + word[start:stop]], *after] += taken * chance
    return dict(chances)


CHANCES = {"bpe": chances_of_merging, "wordpiece": chances_of_matching}


@pytest.mark.parametrize("kind", DROPOUT_KINDS)
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", ["cats", "dogs", "schneehund", "mm", "a"])
def test_every_cut_is_as_likely_as_the_paper_says(
    tokenizers: dict[str, Tokenizer], kind: str, noise: float, word: str
) -> None:
    found, expected = (of(tokenizers[kind], word, noise) for of in (shares, CHANCES[kind]))
    assert found.keys() <= {pieces for pieces, chance in expected.items() if chance > 0}
    for pieces, chance in expected.items():
        assert found.get(pieces, 0.0) == pytest.approx(chance, abs=0.012)


def test_the_only_merge_of_a_word_is_left_out_as_often_as_is_asked_for() -> None:
    tokenizer = Tokenizer.train("bpe", ["ab"], 262)
    whole = tokenizer.encode("ab")
    assert len(whole) == 1
    assert shares(tokenizer, "ab", 0.2)[tuple(whole)] == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("kind", DROPOUT_KINDS)
@settings(max_examples=200, deadline=None)
@given(text=texts, noise=st.floats(0.0, 0.99), seed=st.integers(0, 9))
def test_noise_changes_the_tokens_of_a_text_and_not_what_they_say(
    tokenizers: dict[str, Tokenizer], kind: str, text: str, noise: float, seed: int
) -> None:
    tokenizer = tokenizers[kind]
    plain, noisy = tokenizer.encode(text), cut(tokenizer, text, noise, seed)
    assert tokenizer.decode(noisy) == tokenizer.decode(plain)
    assert {*noisy} & tokenizer.special_ids == {*plain} & tokenizer.special_ids
    if kind == "bpe":
        assert tokenizer.decode(noisy) == text


@pytest.mark.parametrize("kind", DROPOUT_KINDS)
@settings(max_examples=200, deadline=None)
@given(text=texts)
def test_without_noise_the_cut_is_the_plain_one_and_nothing_is_drawn(
    tokenizers: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer, draws = tokenizers[kind], np.random.default_rng(7)
    words = tokenizer.pre_tokenize(text)
    ids, _ = tokenizer.subword_sampler(words).sample(np.arange(len(words)), 0.0, draws)
    assert ids.tolist() == tokenizer.encode(text)
    assert draws.random() == np.random.default_rng(7).random()


@pytest.mark.parametrize("kind", DROPOUT_KINDS)
def test_the_same_draws_give_the_same_cuts(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    one, same, other = (cut(tokenizers[kind], TEXTS[1], 0.4, seed) for seed in (0, 0, 1))
    assert one == same != other


@pytest.mark.parametrize("kind", DROPOUT_KINDS)
def test_more_words_than_are_cut_at_a_time_keep_their_order(
    tokenizers: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer, words = tokenizers[kind], ["cats", "a", "dog", "mats"]
    numbers = np.random.default_rng(0).integers(0, len(words), WORDS_PER_CHUNK + 5)
    ids, starts = tokenizer.subword_sampler(words).sample(numbers, 0.3, np.random.default_rng(0))
    for i in (0, 1, WORDS_PER_CHUNK - 1, WORDS_PER_CHUNK, WORDS_PER_CHUNK + 4):
        assert tokenizer.decode(ids[starts[i] : starts[i + 1]].tolist()) == words[numbers[i]]
    assert starts[-1] == len(ids)


@pytest.mark.parametrize("kind", DROPOUT_KINDS)
def test_no_words_are_no_ids(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    ids, starts = (
        tokenizers[kind]
        .subword_sampler([])
        .sample(np.zeros(0, np.int32), 0.5, np.random.default_rng(0))
    )
    assert ids.tolist() == []
    assert starts.tolist() == [0]


def test_bytes_without_merges_have_one_cut() -> None:
    tokenizer = Tokenizer.train("bpe", ["ab"], 261)
    assert cut(tokenizer, "abba", 0.5) == tokenizer.encode("abba")


def test_words_with_letters_no_vocabulary_knows_have_one_cut() -> None:
    vocabulary = {"?": 0, "a": 1, "b": 2, "ab": 3}
    backend = Backend(models.BPE(vocabulary, [("a", "b")], unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(backend)
    for text in ("abc", "a" * 999):
        assert cut(tokenizer, text, 0.9) == tokenizer.encode(text)
    assert len({tuple(cut(tokenizer, "abab", 0.5, seed)) for seed in range(40)}) == 4


def test_a_word_that_the_plain_cut_does_not_know_stays_unknown() -> None:
    """Its longest match leads nowhere; a shorter one would not, but the plain cut never looks."""
    vocabulary = {"?": 0, "a": 1, "ab": 2, "##b": 3, "##bc": 4}
    tokenizer = Tokenizer(Backend(models.WordPiece(vocabulary, unk_token="?")))
    assert tokenizer.encode("abc") == [0]
    assert {tuple(cut(tokenizer, "abc", 0.5, seed)) for seed in range(20)} == {(0,)}


def test_a_match_after_which_a_word_cannot_be_spelled_is_never_taken() -> None:
    vocabulary = {"?": 0, "a": 1, "ab": 2, "##c": 3}
    tokenizer = Tokenizer(Backend(models.WordPiece(vocabulary, unk_token="?")))
    assert {tuple(cut(tokenizer, "abc", 0.9, seed)) for seed in range(20)} == {(2, 3)}


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZER_KINDS if kind not in DROPOUT_KINDS])
def test_other_kinds_have_no_noise(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    with pytest.raises(QkvError, match=f"for bpe and wordpiece tokenizers, not for {kind}"):
        tokenizers[kind].subword_sampler(["cats"])


def test_letters_that_are_spelled_unlike_at_the_end_of_a_word_are_refused() -> None:
    model = models.BPE({"a": 0, "a</w>": 1}, [], end_of_word_suffix="</w>")
    with pytest.raises(QkvError, match="leave it out"):
        Tokenizer(Backend(model)).subword_sampler(["a"])


def test_a_tokenizer_without_words_is_refused() -> None:
    model = models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    with pytest.raises(QkvError, match="takes a text for one word"):
        Tokenizer(Backend(model)).subword_sampler(["ab"])
