"""The best continuations are those that sorting everything would give, ties included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.engine.beam.hypotheses import BLOCK, best_continuations


def sort_everything(logs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    V = logs.shape[-1]
    sums, place = (logs + scores[:, :, None]).flatten(1).sort(dim=1, descending=True, stable=True)
    return sums[:, :count], place[:, :count] // V, place[:, :count] % V


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.sampled_from([2, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 3]),
    beams=st.integers(1, 5),
    values=st.sampled_from([2, 5, 1000]),
)
def test_they_are_the_first_of_all_sorted(
    seed: int, vocabulary: int, beams: int, values: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    logs = -torch.randint(values, (3, beams, vocabulary), generator=draws) / 8.0
    scores = -torch.randint(values, (3, beams), generator=draws) / 8.0
    found = best_continuations(logs, scores, 2 * beams)
    for ours, theirs in zip(found, sort_everything(logs, scores, 2 * beams), strict=True):
        assert torch.equal(ours, theirs)


def test_dead_beams_and_forbidden_tokens_come_last() -> None:
    logs = torch.tensor([[[-1.0, -torch.inf, -2.0], [-0.5, -0.5, -0.5]]])
    scores = torch.tensor([[-1.0, -torch.inf]])
    sums, beams, tokens = best_continuations(logs, scores, 4)
    assert sums.tolist() == [[-2.0, -3.0, -torch.inf, -torch.inf]]
    assert (beams[0, :2].tolist(), tokens[0, :2].tolist()) == ([0, 0], [0, 2])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_not_a_number_shows(sign: float) -> None:
    logs = -torch.ones(2, 3, 131)
    logs[1, 2, 77] = torch.tensor(torch.nan).copysign(torch.tensor(sign))
    sums, beams, tokens = best_continuations(logs, torch.zeros(2, 3), 2)
    assert sums[1, 0].isnan()
    assert (int(beams[1, 0]), int(tokens[1, 0])) == (2, 77)
    assert sums[0].tolist() == [-1.0, -1.0]
