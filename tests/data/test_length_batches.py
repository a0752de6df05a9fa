"""Batches of texts that are nearly equally long: every text once, and next to no padding."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.data import read_labelled, read_pairs
from qkv.data.tokenized_texts import MAX_PADDING, MIN_FILL, Ids, length_batches, padding_fraction
from qkv.text import Tokenizer


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def computed(lengths: Ids, batch: Ids) -> int:
    """The tokens of that batch with their padding."""
    return len(batch) * int(lengths[batch].max(axis=0).sum())


@st.composite
def many_lengths(draw: st.DrawFn) -> Ids:
    sides = draw(st.integers(1, 2))
    row = st.lists(st.integers(1, 61), min_size=sides, max_size=sides)
    return np.array(draw(st.lists(row, min_size=1, max_size=70)))


SOME = settings(max_examples=80, deadline=None)


@SOME
@given(many_lengths(), st.integers(1, 500), st.integers(0, 9))
def test_every_example_stands_in_one_batch(lengths: Ids, budget: int, seed: int) -> None:
    batches = length_batches(lengths, budget, draws(seed))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len(batch) for batch in batches)


@SOME
@given(many_lengths(), st.integers(1, 500))
def test_no_batch_is_over_budget_unless_a_single_example_is(lengths: Ids, budget: int) -> None:
    for batch in length_batches(lengths, budget, draws()):
        assert computed(lengths, batch) <= budget or len(batch) == 1


@SOME
@given(many_lengths(), st.integers(1, 500))
def test_a_batch_is_nearly_full_of_text_or_small(lengths: Ids, budget: int) -> None:
    for batch in length_batches(lengths, budget, draws()):
        size = computed(lengths, batch)
        padded = size - int(lengths[batch].sum())
        assert size <= MIN_FILL * budget or padded <= MAX_PADDING * size


@SOME
@given(many_lengths(), st.integers(1, 500), st.integers(0, 9))
def test_it_is_a_pure_function_of_the_draws(lengths: Ids, budget: int, seed: int) -> None:
    before = lengths.copy()
    one, other = (length_batches(lengths, budget, draws(seed)) for _ in range(2))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in other]
    assert (lengths == before).all()


def test_other_draws_give_other_batches_in_another_order() -> None:
    lengths = draws(1).integers(2, 30, (300, 1))
    one, other = (length_batches(lengths, 211, draws(epoch)) for epoch in (0, 1))
    in_order = [[batch.tolist() for batch in batches] for batches in (one, other)]
    assert in_order[0] != in_order[1]
    members = [{frozenset(batch) for batch in batches} for batches in in_order]
    assert members[0] != members[1], "the same batches, only shuffled"
    sizes = [lengths[batch].max() for batch in one]
    assert sizes != sorted(sizes), "short texts first would be a curriculum"


def test_a_text_longer_than_the_budget_is_alone() -> None:
    lengths = np.array([[3], [101], [3], [103], [3]])
    batches = {tuple(sorted(batch.tolist())) for batch in length_batches(lengths, 20, draws())}
    assert batches == {(0, 2, 4), (1,), (3,)}


def test_padding_is_what_is_computed_in_vain() -> None:
    lengths = np.array([[3, 1], [1, 5]])
    assert padding_fraction(lengths, [np.array([0, 1])]) == pytest.approx(1 - 10 / 16)
    assert padding_fraction(lengths, [np.array([0]), np.array([1])]) == 0.0


@pytest.mark.parametrize(("sides", "limit"), [(1, 0.01), (2, 0.03)])
def test_many_texts_have_little_padding(sides: int, limit: float) -> None:
    rng = draws(3)
    first = rng.integers(3, 40, (5003, 1))
    near = np.maximum(1, first + rng.integers(-4, 5, first.shape))
    lengths = np.concatenate([first, near], axis=1)[:, :sides]
    assert padding_fraction(lengths, length_batches(lengths, 2048, draws())) <= limit


@pytest.mark.slow
def test_the_translations_of_multi30k_have_almost_no_padding(shared: Path) -> None:
    folder = shared / "data" / "multi30k"
    pairs = read_pairs([], str(folder / "train.en"), str(folder / "train.de"))
    sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
    tokenizer = Tokenizer.train("bpe", [text for side in sides for text in side], 6000)
    lengths = np.array([[len(ids) for ids in tokenizer.encode_many(side)] for side in sides]).T + 1
    assert padding_fraction(lengths, length_batches(lengths, 3000, draws())) <= 0.02


def test_the_sentences_of_sst2_have_almost_no_padding(shared: Path) -> None:
    texts = [row.text for row in read_labelled([shared / "data" / "sst2" / "train.tsv"])]
    tokenizer = Tokenizer.train("wordpiece", texts, 6000)
    lengths = np.array([[len(ids)] for ids in tokenizer.encode_many(texts)])
    assert padding_fraction(lengths, length_batches(lengths, 1024, draws())) <= 0.02
