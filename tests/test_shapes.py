"""Sizes are checked once, at the door; an error names the axis, both tensors and both numbers."""

import re

import pytest
import torch

from qkv.errors import QkvError, ShapeError
from qkv.shapes import AXES, expect

q, k = torch.zeros(2, 6, 5, 11), torch.zeros(2, 3, 7, 11)


def test_every_letter_gets_its_size() -> None:
    sizes = expect(q=(q, "B H T E"), k=(k, "B K S E"))
    assert sizes == {"B": 2, "H": 6, "T": 5, "E": 11, "K": 3, "S": 7}


def test_a_letter_with_two_sizes_names_both_tensors_and_both_numbers() -> None:
    with pytest.raises(ShapeError) as caught:
        expect(q=(q, "B H T E"), k=(k, "B H S E"))
    says = "k has H=3 (heads) but q has H=6; shape of k: (2, 3, 7, 11) = (B H S E)"
    assert str(caught.value) == says


def test_a_letter_twice_in_one_tensor_must_be_one_size() -> None:
    assert expect(square=(torch.zeros(5, 5), "D D")) == {"D": 5}
    with pytest.raises(ShapeError, match=r"square has D=7 .* square has D=5"):
        expect(square=(torch.zeros(5, 7), "D D"))


def test_the_first_tensor_with_the_letter_is_the_one_compared_with() -> None:
    a, b, c = torch.zeros(3), torch.zeros(5, 2), torch.zeros(7, 5)
    with pytest.raises(ShapeError, match=r"c has T=7 .* b has T=5"):
        expect(a=(a, "B"), b=(b, "T D"), c=(c, "T V"))


@pytest.mark.parametrize(("shape", "axes"), [((2, 5), "B T D"), ((2, 5, 7, 1), "B T D"), ((), "B")])
def test_another_number_of_axes_names_the_shape_and_the_axes_needed(
    shape: tuple[int, ...], axes: str
) -> None:
    says = f"x has shape {shape} but needs {len(axes.split())} axes ({axes})"
    with pytest.raises(ShapeError, match=re.escape(says)):
        expect(x=(torch.zeros(shape), axes))


def test_a_name_that_is_not_in_the_legend_stands_for_itself() -> None:
    assert expect(w=(torch.zeros(3, 4), "rank width")) == {"rank": 3, "width": 4}
    with pytest.raises(ShapeError, match=r"up has rank=5 \(rank\) but down has rank=3"):
        expect(down=(torch.zeros(4, 3), "D rank"), up=(torch.zeros(5, 7), "rank width"))


def test_an_axis_of_size_zero_is_a_size_like_any_other() -> None:
    assert expect(x=(torch.zeros(0, 3), "B D")) == {"B": 0, "D": 3}
    with pytest.raises(ShapeError, match=r"y has B=2 .* x has B=0"):
        expect(x=(torch.zeros(0, 3), "B D"), y=(torch.zeros(2, 3), "B D"))


def test_a_number_without_axes_and_no_tensors_at_all_are_fine() -> None:
    assert expect(loss=(torch.tensor(1.0), "")) == {}
    assert expect() == {}


def test_the_legend_is_the_designs() -> None:
    assert "".join(AXES) == "BTSDHKEFVL"


def test_a_shape_error_is_the_users_to_put_right() -> None:
    assert issubclass(ShapeError, QkvError)
