"""Held-out examples and leaks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data import overlap, split
from qkv.errors import DataError


@given(count=st.integers(2, 97), seed=st.integers(0, 2**63), fraction=st.floats(0.001, 0.999))
def test_every_item_is_on_one_side_and_each_side_has_one(
    count: int, seed: int, fraction: float
) -> None:
    train, validation = split(range(count), seed, fraction)
    assert sorted(train + validation) == list(range(count))
    assert train == sorted(train)
    assert validation == sorted(validation)
    assert train
    assert validation
    assert (train, validation) == split(range(count), seed, fraction)


def test_a_tenth_is_held_out_and_another_seed_holds_out_others() -> None:
    items = [f"text {i}" for i in range(1_000)]
    assert len(split(items, seed=1)[1]) == 100
    assert split(items, seed=1)[1] != split(items, seed=2)[1]


def test_the_split_does_not_change_between_versions() -> None:
    assert split("abcdefghijklm", seed=5, fraction=0.3)[1] == ["e", "f", "i", "j"]


@pytest.mark.parametrize(
    ("items", "fraction", "message"),
    [
        ([], 0.1, "cannot split 0 examples into training and validation; give at least two"),
        (["one"], 0.1, "cannot split 1 example into training and validation; give at least two"),
        (["a", "b"], 0.0, "between 0 and 1, not 0.0"),
        (["a", "b"], 1.5, "between 0 and 1, not 1.5"),
        (["a", "b"], float("nan"), "between 0 and 1, not nan"),
    ],
)
def test_a_split_with_an_empty_side_is_refused(
    items: list[str], fraction: float, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        split(items, 0, fraction)


def test_leaks_are_found_whatever_their_white_space_and_told_once() -> None:
    train = ["a  good film", "a dog", "only here"]
    validation = ["the sea", " a dog\n", "a good film", "a dog", "A DOG"]
    assert overlap(train, validation) == [" a dog\n", "a good film"]
    assert overlap(train, []) == []


def test_leaks_may_be_looked_for_in_a_stream() -> None:
    train, validation = [f"text  {i}" for i in range(0, 1_000, 2)], [f"text {i}" for i in range(99)]
    assert overlap(iter(train), iter(validation)) == validation[::2]
