"""Masks as grids one can read: 1 = may attend, a row is a query, a column is a key."""

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attention.mask_cases import composed
from torch import Tensor

from qkv.attention import AlibiMask, BucketMask, Mask, Tile, attend, fused, reference
from qkv.errors import MaskError

CPU = torch.device("cpu")


def assert_grid(mask: Mask, T: int, S: int, rows: list) -> None:
    expected = torch.tensor(rows, dtype=torch.bool)
    assert torch.equal(mask.dense(T, S).expand(expected.shape), expected)


def test_full_sees_everything() -> None:
    assert_grid(Mask.full(), 2, 3, [[1, 1, 1], [1, 1, 1]])


def test_causal_sees_itself_and_what_came_before() -> None:
    grid = [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ]
    assert_grid(Mask.causal(), 4, 4, grid)


def test_causal_with_more_keys_than_queries_is_aligned_to_the_last_key() -> None:
    grid = [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    assert_grid(Mask.causal(), 3, 5, grid)


def test_causal_with_more_queries_than_keys_leaves_the_first_queries_blind() -> None:
    grid = [
        [0, 0, 0],
        [0, 0, 0],
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]
    assert_grid(Mask.causal(), 5, 3, grid)


def test_one_causal_query_behind_a_cache_sees_all_of_it() -> None:
    assert_grid(Mask.causal(), 1, 5, [[1, 1, 1, 1, 1]])


def test_a_window_sees_so_many_before_and_none_after() -> None:
    grid = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
    assert_grid(Mask.window(2), 5, 5, grid)


def test_a_window_sees_so_many_before_and_so_many_after() -> None:
    grid = [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1],
    ]
    assert_grid(Mask.window(1, 2), 5, 5, grid)


def test_a_window_of_nothing_sees_only_itself() -> None:
    assert_grid(Mask.window(0), 3, 3, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_a_window_follows_the_last_keys_too() -> None:
    assert_grid(Mask.window(1), 2, 5, [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]])


def test_a_window_with_more_queries_than_keys_leaves_the_first_queries_blind() -> None:
    assert_grid(Mask.window(1), 4, 2, [[0, 0], [0, 0], [1, 0], [1, 1]])


def test_a_causal_window_cuts_off_what_comes_after() -> None:
    grid = [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    assert_grid(Mask.window(1, 3) & Mask.causal(), 4, 4, grid)


def test_padding_hides_the_keys_behind_each_length() -> None:
    grid = [
        [[[1, 1, 0, 0], [1, 1, 0, 0]]],
        [[[0, 0, 0, 0], [0, 0, 0, 0]]],
        [[[1, 1, 1, 1], [1, 1, 1, 1]]],
    ]
    assert_grid(Mask.padding(torch.tensor([2, 0, 4])), 2, 4, grid)


def test_documents_do_not_see_each_other() -> None:
    ids = torch.tensor([[0, 0, 1, 1, 1]])
    grid = [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
    ]
    assert_grid(Mask.documents(ids), 5, 5, [[grid]])


def test_documents_of_queries_and_keys_may_be_numbered_apart() -> None:
    ids = torch.tensor([[7, 8], [8, 9]])
    key_ids = torch.tensor([[8, 7, 7], [7, 7, 7]])
    grid = [
        [[[0, 1, 1], [1, 0, 0]]],
        [[[0, 0, 0], [0, 0, 0]]],
    ]
    assert_grid(Mask.documents(ids, key_ids), 2, 3, grid)


def test_causal_documents_start_afresh_at_each_text() -> None:
    grid = [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
    mask = Mask.causal() & Mask.documents(torch.tensor([[0, 0, 1, 1, 1]]))
    assert_grid(mask, 5, 5, [[grid]])


def test_an_explicit_grid_is_taken_as_it_is() -> None:
    grid = [
        [0, 1, 0],
        [1, 0, 1],
    ]
    assert_grid(Mask.explicit(torch.tensor(grid, dtype=torch.bool)), 2, 3, grid)


def test_an_explicit_axis_of_size_one_is_shared() -> None:
    keys = torch.tensor([[1, 0, 1]], dtype=torch.bool)
    assert_grid(Mask.explicit(keys), 2, 3, [[1, 0, 1], [1, 0, 1]])
    queries = torch.tensor([[0], [1]], dtype=torch.bool)
    assert_grid(Mask.explicit(queries), 2, 3, [[0, 0, 0], [1, 1, 1]])
    by_head = torch.tensor([1, 0], dtype=torch.bool).view(1, 2, 1, 1)
    grid = [
        [[1, 1, 1], [1, 1, 1]],
        [[0, 0, 0], [0, 0, 0]],
    ]
    assert_grid(Mask.explicit(by_head), 2, 3, [grid])


def test_masks_joined_allow_only_what_all_of_them_allow() -> None:
    holes = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 1]], dtype=torch.bool)
    mask = Mask.causal() & Mask.padding(torch.tensor([2, 3])) & Mask.explicit(holes)
    grid = [
        [[[1, 0, 0], [1, 0, 0], [0, 1, 0]]],
        [[[1, 0, 0], [1, 0, 0], [0, 1, 1]]],
    ]
    assert_grid(mask, 3, 3, grid)


def test_a_bias_hides_nothing_and_biases_add_up() -> None:
    mask = Mask.bias(torch.tensor([[1.0, 2.0]])) & Mask.bias(torch.tensor([[10.0], [20.0]]))
    assert_grid(mask, 2, 2, [[1, 1], [1, 1]])
    added = mask.bias_in(Tile.full(2, 2, CPU))
    assert torch.equal(added, torch.tensor([[11.0, 12.0], [21.0, 22.0]]))


def test_a_mask_without_a_bias_adds_nothing() -> None:
    assert Mask.causal().bias_in(Tile.full(3, 5, CPU)) is None


@pytest.mark.parametrize("kernel", [fused, attend, lambda *args: reference(*args).output])
def test_true_means_may_attend(kernel: object) -> None:
    q = torch.zeros(1, 1, 2, 1)
    k = torch.zeros(1, 1, 3, 1)
    v = torch.tensor([1.0, 10.0, 100.0])
    allowed = torch.tensor([[1, 0, 0], [0, 1, 1]], dtype=torch.bool)
    out = kernel(q, k, v.view(1, 1, 3, 1), Mask.explicit(allowed))
    torch.testing.assert_close(out.flatten(), torch.tensor([1.0, 55.0]))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_tile_is_a_crop_of_the_dense_mask(data: st.DataObject) -> None:
    B = 2
    H = 3
    T = data.draw(st.integers(1, 9), label="T")
    S = data.draw(st.integers(1, 9), label="S")
    mask = data.draw(st.composite(composed)(B, H, T, S))
    queries = data.draw(runs(T), label="queries")
    keys = data.draw(runs(S), label="keys")
    tile = Tile(queries, keys, S - T, CPU)

    def crop(full: Tensor) -> Tensor:
        part = full.expand(B, H, T, S)[..., queries.start : queries.stop, :]
        return part[..., keys.start : keys.stop]

    shape = (B, H, len(queries), len(keys))
    allowed = mask.allowed_in(tile)
    if allowed is None:
        allowed = torch.ones(shape, dtype=torch.bool)
    allowed = allowed.expand(shape)
    assert torch.equal(allowed, crop(mask.dense(T, S)))

    full_bias = mask.bias_in(Tile.full(T, S, CPU))
    bias = mask.bias_in(tile)
    assert (full_bias is None) == (bias is None)
    if bias is not None:
        assert torch.equal(bias.expand(shape), crop(full_bias))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_every_key_out_of_reach_is_unseen(data: st.DataObject) -> None:
    B = 2
    H = 3
    T = data.draw(st.integers(1, 9), label="T")
    S = data.draw(st.integers(1, 9), label="S")
    mask = data.draw(st.composite(composed)(B, H, T, S))
    queries = data.draw(runs(T), label="queries")
    keys = data.draw(runs(S), label="keys")
    reach = mask.key_range(Tile(queries, keys, S - T, CPU))

    dense = mask.dense(T, S).expand(B, H, T, S)[..., queries.start : queries.stop, :]
    for key in keys:
        assert key in reach or not dense[..., key].any()
    assert all(key in keys for key in reach)


@pytest.mark.parametrize(
    ("mask", "reach"),
    [
        (Mask.full(), range(7)),
        (Mask.causal(), range(5)),
        (Mask.window(1), range(2, 5)),
        (Mask.window(1, 1), range(2, 6)),
        (Mask.window(1, 4) & Mask.causal(), range(2, 5)),
        (Mask.padding(torch.tensor([3])), range(7)),
    ],
)
def test_the_reach_of_two_queries_is_no_longer_than_it_must_be(mask: Mask, reach: range) -> None:
    assert mask.key_range(Tile(range(3, 5), range(7), 0, CPU)) == reach


def test_queries_before_the_first_key_reach_nothing() -> None:
    tile = Tile(range(2), range(3), -4, CPU)
    assert len(Mask.causal().key_range(tile)) == 0
    assert len(Mask.window(5).key_range(tile)) == 0


def runs(size: int) -> st.SearchStrategy[range]:
    """Non-empty stretches of range(size)."""
    ends = st.tuples(st.integers(0, size), st.integers(0, size)).filter(lambda p: p[0] != p[1])
    return ends.map(lambda pair: range(min(pair), max(pair)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_an_explicit_mask_of_numbers_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(MaskError, match=f"booleans.*True = may attend.*{dtype}"):
        Mask.explicit(torch.ones(2, 3, dtype=dtype))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_bias_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(MaskError, match=r"finite.*Mask\.explicit"):
        Mask.bias(torch.tensor([[0.0, number]]))


@pytest.mark.parametrize(("before", "after"), [(-1, 0), (2, -3)])
def test_a_negative_window_is_refused_with_both_numbers(before: int, after: int) -> None:
    with pytest.raises(MaskError, match=f"before={before}, after={after}"):
        Mask.window(before, after)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.long)


@pytest.mark.parametrize("kernel", [fused, reference, attend])
@pytest.mark.parametrize(
    ("mask", "actual", "needed"),
    [
        (Mask.padding(zeros(3)), "(3,)", "(B) = (2,)"),
        (Mask.padding(zeros(2, 1)), "(2, 1)", "(B) = (2,)"),
        (Mask.documents(zeros(2, 5)), "(2, 5)", "(B, S) = (2, 7)"),
        (Mask.documents(zeros(2, 4), zeros(2, 7)), "(2, 4)", "(B, T) = (2, 5)"),
        (Mask.documents(zeros(3, 5), zeros(3, 7)), "(3, 5)", "(B, T) = (2, 5)"),
        (Mask.explicit(zeros(5, 6).bool()), "(5, 6)", "(T, S) = (5, 7)"),
        (Mask.explicit(zeros(7, 5).bool()), "(7, 5)", "(T, S) = (5, 7)"),
        (Mask.explicit(zeros(2, 5, 7).bool()), "(2, 5, 7)", "(B, H, T, S) = (2, 6, 5, 7)"),
        (Mask.explicit(zeros(2, 3, 5, 7).bool()), "(2, 3, 5, 7)", "(B, H, T, S) = (2, 6, 5, 7)"),
        (Mask.bias(torch.zeros(4, 7)), "(4, 7)", "(T, S) = (5, 7)"),
        (Mask.bias(torch.zeros(1, 5, 1, 7)), "(1, 5, 1, 7)", "(B, H, T, S) = (2, 6, 5, 7)"),
    ],
)
def test_a_mask_made_for_other_sizes_names_both_shapes(
    kernel: object, mask: Mask, actual: str, needed: str
) -> None:
    q = torch.zeros(2, 6, 5, 11)
    k = torch.zeros(2, 3, 7, 11)
    with pytest.raises(MaskError) as caught:
        kernel(q, k, k, Mask.causal() & mask)
    assert re.search(f"{re.escape(actual)} but .* needs {re.escape(needed)}", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kernel", [fused, reference])
@pytest.mark.parametrize("mask", [Mask.padding(zeros(0)), Mask.documents(zeros(0, 5), zeros(0, 7))])
def test_a_mask_for_no_rows_at_all_does_not_fit_one_row(kernel: object, mask: Mask) -> None:
    q = torch.zeros(1, 6, 5, 11)
    k = torch.zeros(1, 3, 7, 11)
    with pytest.raises(MaskError):
        kernel(q, k, k, mask)


@pytest.mark.parametrize("kernel", [fused, reference])
@pytest.mark.parametrize(
    "part",
    [AlibiMask(torch.ones(5)), BucketMask(torch.ones(8, 5), max_distance=9, bidirectional=True)],
)
def test_relative_positions_made_for_other_heads_are_a_mask_error(
    kernel: object, part: object
) -> None:
    q = torch.zeros(2, 6, 5, 11)
    k = torch.zeros(2, 3, 7, 11)
    with pytest.raises(MaskError, match=r"5.*6"):
        kernel(q, k, k, Mask((part,)))


def test_joining_masks_leaves_both_as_they_were() -> None:
    causal = Mask.causal()
    window = Mask.window(2)
    both = causal & window
    assert (len(causal.parts), len(window.parts), len(both.parts)) == (1, 1, 2)
    assert causal == Mask.causal()
    assert window == Mask.window(2)


def test_a_mask_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Mask.causal().parts = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Mask.window(2).parts[0].before = 3


def test_using_a_mask_leaves_its_tensors_as_they_were() -> None:
    lengths = torch.tensor([3, 5])
    ids = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    grid = torch.eye(5, dtype=torch.bool)
    values = torch.randn(5, 5)
    before = [t.clone() for t in (lengths, ids, grid, values)]
    mask = Mask.padding(lengths) & Mask.documents(ids) & Mask.explicit(grid) & Mask.bias(values)

    x = torch.randn(2, 3, 5, 7)
    first = attend(x, x, x, mask)
    reference(x, x, x, mask)
    mask.dense(5, 5).zero_()

    assert torch.equal(attend(x, x, x, mask), first)
    for now, then in zip((lengths, ids, grid, values), before, strict=True):
        assert torch.equal(now, then)


def test_the_dense_grid_of_an_explicit_mask_is_a_copy() -> None:
    grid = torch.ones(2, 3, dtype=torch.bool)
    Mask.explicit(grid).dense(2, 3).zero_()
    assert grid.all()
