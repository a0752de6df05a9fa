"""Texts that are cut anew in every epoch."""

import numpy as np
import pytest

from qkv.data.tokenized_texts import BpeDropoutTexts, TokenizedTexts
from qkv.text import Tokenizer

TEXTS = ["the cat sat on the mat", "", "a dog and the cats", "<mask> the barn", "birds sang " * 7]


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(request.param, TEXTS, 330)


def dropout_texts(
    tokenizer: Tokenizer, dropout: float = 0.3, max_length: int = 99, seed: int = 0
) -> BpeDropoutTexts:
    plain = TokenizedTexts.of(tokenizer.encode_many(TEXTS), tokenizer.vocab_size)
    return BpeDropoutTexts(TEXTS, plain, tokenizer, dropout, max_length, (seed, 0))


def ids(texts: TokenizedTexts) -> list[list[int]]:
    return [text.tolist() for text in texts]


def test_an_epoch_is_a_function_of_the_seed_and_its_number(tokenizer: Tokenizer) -> None:
    texts = dropout_texts(tokenizer)
    first, second = ids(texts.epoch(0)), ids(texts.epoch(1))
    assert first != second
    assert ids(texts.epoch(0)) == first == ids(dropout_texts(tokenizer).epoch(0))
    assert ids(dropout_texts(tokenizer, seed=1).epoch(0)) != first


def test_every_epoch_says_what_the_texts_say(tokenizer: Tokenizer) -> None:
    texts = dropout_texts(tokenizer, dropout=0.5)
    plain = [tokenizer.decode(text) for text in ids(texts.plain)]
    for epoch in range(5):
        assert [tokenizer.decode(text) for text in ids(texts.epoch(epoch))] == plain
        assert texts.epoch(epoch).ids.dtype == texts.plain.ids.dtype
    assert texts.num_fixed == 0


def test_an_epoch_is_made_once(tokenizer: Tokenizer) -> None:
    texts = dropout_texts(tokenizer)
    assert texts.epoch(2) is texts.epoch(2)


def test_a_text_that_would_become_too_long_is_cut_plainly(tokenizer: Tokenizer) -> None:
    texts = dropout_texts(tokenizer, dropout=0.9)
    max_length = int(texts.plain.lengths[:-1].max())
    tight, loose = dropout_texts(tokenizer, 0.9, max_length).epoch(0), texts.epoch(0)
    longer = loose.lengths > max_length
    assert 0 < longer.sum() < len(TEXTS)
    expected = [ids(texts.plain if long else loose)[i] for i, long in enumerate(longer)]
    assert ids(tight) == expected


def test_a_text_whose_ids_are_not_those_of_its_words_is_cut_plainly(tokenizer: Tokenizer) -> None:
    """As where a token was added to a vocabulary, which is token_ids before there are words."""
    token_ids = tokenizer.encode_many(TEXTS)
    token_ids[2] = [*token_ids[2], tokenizer.mask_id]
    plain = TokenizedTexts.of(token_ids, tokenizer.vocab_size)
    texts = BpeDropoutTexts(TEXTS, plain, tokenizer, 0.9, 99, (0, 0))
    assert texts.num_fixed == 1
    for epoch in range(3):
        assert texts.epoch(epoch)[2].tolist() == token_ids[2]
        assert texts.epoch(epoch)[0].tolist() != token_ids[0]
        assert np.array_equal(texts.epoch(epoch).lengths, [len(t) for t in ids(texts.epoch(epoch))])
