"""Dropout: the asked share becomes 0, what stays keeps the mean, and slopes follow."""

import pytest
import torch

from qkv.model.norm import Dropout


@pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_the_asked_share_is_dropped_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(997, 1009)
    y = Dropout(p)(x)
    share = round(p * 256) / 256
    assert (y == 0).float().mean().item() == pytest.approx(share, abs=0.003)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)])


def test_every_place_is_dropped_equally_often() -> None:
    torch.manual_seed(1)
    drop, x = Dropout(0.25), torch.ones(3, 7, 5)  # 105 numbers: the last word is not used up
    dropped = torch.stack([drop(x) == 0 for _ in range(4000)]).float().mean(dim=0)
    assert (dropped - 0.25).abs().max() < 0.035  # five standard errors


def test_slopes_are_those_of_what_stayed() -> None:
    torch.manual_seed(2)
    x = torch.randn(13, 17, requires_grad=True)
    y = Dropout(0.3)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach(), rtol=1e-5, atol=1e-6)


def test_nothing_is_dropped_in_evaluation_or_with_chance_zero() -> None:
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_same_seed_drops_the_same() -> None:
    x, drop = torch.randn(11, 3), Dropout(0.5)
    torch.manual_seed(3)
    first = drop(x)
    torch.manual_seed(3)
    assert torch.equal(drop(x), first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_numbers_of_other_kinds_stay_of_their_kind(dtype: torch.dtype) -> None:
    assert Dropout(0.5)(torch.ones(9, 4, dtype=dtype)).dtype == dtype
