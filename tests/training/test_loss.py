"""The chunked loss equals the plain one, value and gradients, in a fraction of the memory."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from qkv.model.output import LazyLogits
from qkv.training.loss import IGNORED, cross_entropy, fused_cross_entropy

N, D, V = 23, 11, 37


def problem(bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    draws = torch.Generator().manual_seed(0)
    states, table = torch.randn(N, D, generator=draws), torch.randn(V, D, generator=draws)
    targets = torch.randint(V, (N,), generator=draws)
    targets[[3, 4, N - 1]] = IGNORED
    shift = torch.randn(V, generator=draws) if bias else None
    return states, table, shift, targets


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cap", [None, 2.5])
@pytest.mark.parametrize("chunk", [1, 7, N, 100])
def test_in_chunks_equals_all_at_once(
    smoothing: float, bias: bool, cap: float | None, chunk: int
) -> None:
    states, table, shift, targets = problem(bias)
    mine = [t.double().requires_grad_() for t in (states, table, shift) if t is not None]
    his = [t.detach().clone().requires_grad_() for t in mine]
    scores = torch.nn.functional.linear(*his)
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    plain = torch.nn.functional.cross_entropy(
        scores, targets, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )
    factors = LazyLogits(*mine, *([] if bias else [None]), cap)
    ours = fused_cross_entropy(factors, targets, smoothing, chunk)
    assert ours.item() == pytest.approx(plain.item(), rel=1e-6)
    (3.0 * plain).backward()
    (3.0 * ours).backward()
    for a, b in zip(mine, his, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_plain_loss_is_a_sum_over_real_targets(smoothing: float) -> None:
    states, table, _, targets = problem(bias=False)
    shares = (states @ table.T).log_softmax(dim=-1)
    expected = 0.0
    for row, target in zip(shares, targets.tolist(), strict=True):
        if target != IGNORED:
            expected -= (1 - smoothing) * row[target].item() + smoothing * row.mean().item()
    assert cross_entropy(states @ table.T, targets, smoothing).item() == pytest.approx(expected)


def test_a_batch_without_targets_costs_nothing() -> None:
    states, table, _, _ = problem(bias=False)
    states.requires_grad_()
    loss = fused_cross_entropy(LazyLogits(states, table, None, None), torch.full((N,), IGNORED))
    loss.backward()
    assert loss.item() == 0.0
    assert (states.grad == 0).all()


class Largest(TorchDispatchMode):
    """The largest tensor made while it watches."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


def test_no_tensor_is_as_large_as_all_scores() -> None:
    states = torch.randn(2048, 16, requires_grad=True)
    table = torch.randn(8000, 16, requires_grad=True)
    with Largest() as seen:
        factors = LazyLogits(states, table, None, None)
        fused_cross_entropy(factors, torch.randint(8000, (2048,))).backward()
    assert seen.numel <= 0.25 * 2048 * 8000


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_without_gradients_the_loss_is_the_same(chunk: int) -> None:
    states, table, shift, targets = problem(bias=True)
    factors = LazyLogits(states, table, shift, None)
    learning = fused_cross_entropy(factors, targets, 0.1, chunk)
    with torch.no_grad():
        looking = fused_cross_entropy(factors, targets, 0.1, chunk)
    assert looking.item() == pytest.approx(learning.item(), rel=1e-6)
