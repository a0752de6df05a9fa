"""Splitting into heads, joining them again, and the two ways to project."""

import pytest
import torch

from qkv.attention import join_heads, project_block_diagonal, project_low_rank, split_heads
from qkv.errors import ShapeError

B = 2
H = 3
T = 5
E = 7
D = 21


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_joining_undoes_splitting() -> None:
    x = numbers(B, T, D)
    assert torch.equal(join_heads(split_heads(x, H)), x)


def test_splitting_undoes_joining() -> None:
    x = numbers(B, H, T, E)
    assert torch.equal(split_heads(join_heads(x), H), x)


def test_head_h_takes_the_columns_from_h_times_the_width() -> None:
    x = numbers(B, T, D)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, T, E)
    for h in range(H):
        assert torch.equal(heads[:, h], x[:, :, h * E : (h + 1) * E])


def test_two_heads_of_two_by_hand() -> None:
    x = torch.tensor([[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]])
    expected = [[[[1, 2], [5, 6], [9, 10]], [[3, 4], [7, 8], [11, 12]]]]
    assert split_heads(x, 2).tolist() == expected


def test_one_head_is_the_whole_width() -> None:
    x = numbers(B, T, D)
    assert torch.equal(split_heads(x, 1)[:, 0], x)


def test_splitting_works_on_a_tensor_that_is_not_contiguous() -> None:
    x = numbers(T, B, D).transpose(0, 1)
    assert torch.equal(split_heads(x, H), split_heads(x.contiguous(), H))


def test_project_slices_equals_a_loop_over_heads() -> None:
    x = numbers(B, T, D)
    weight = numbers(H, D // H, 11, seed=1)
    each = [x[:, :, 7 * h : 7 * h + 7] @ weight[h] for h in range(H)]
    projected = project_block_diagonal(x, weight)
    assert projected.shape == (B, H, T, 11)
    torch.testing.assert_close(projected, torch.stack(each, dim=1))


def test_project_factored_equals_the_product_of_its_factors() -> None:
    x = numbers(B, T, D)
    down = numbers(D, 4, seed=1)
    up = numbers(4, 13, seed=2)
    projected = project_low_rank(x, down, up)
    assert projected.shape == (B, T, 13)
    torch.testing.assert_close(projected, x @ (down @ up))


def test_project_factored_reaches_only_as_many_directions_as_its_rank() -> None:
    out = project_low_rank(numbers(1, 50, D), numbers(D, 4, seed=1), numbers(4, 13, seed=2))
    assert torch.linalg.matrix_rank(out[0]) == 4


def test_heads_that_do_not_divide_the_width_are_named_with_both_numbers() -> None:
    with pytest.raises(ShapeError, match="heads=4 must divide the width 21"):
        split_heads(numbers(B, T, D), 4)


@pytest.mark.parametrize("shape", [(T, D), (B, 1, T, D)])
def test_splitting_what_is_not_a_batch_of_sequences_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="axes"):
        split_heads(numbers(*shape), H)


@pytest.mark.parametrize("shape", [(B, T, E), (1, B, H, T, E)])
def test_joining_what_is_not_split_into_heads_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="axes"):
        join_heads(numbers(*shape))


def test_slices_that_do_not_add_up_to_the_width_are_named_with_both_numbers() -> None:
    with pytest.raises(ShapeError, match=r"3 heads that read 5 numbers each .* 15, .* width 21"):
        project_block_diagonal(numbers(B, T, D), numbers(H, 5, 11))


def test_factors_that_do_not_meet_are_named_with_both_numbers() -> None:
    with pytest.raises(ShapeError, match=r"up has rank=5 .* down has rank=4"):
        project_low_rank(numbers(B, T, D), numbers(D, 4), numbers(5, 13))
    with pytest.raises(ShapeError, match=r"x has D=21 .* down has D=20"):
        project_low_rank(numbers(B, T, D), numbers(20, 4), numbers(4, 13))
