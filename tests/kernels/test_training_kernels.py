"""Every training kernel equals its slower counterpart in torch, forward and backward."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.native import needs_compiler
from torch import Tensor

from qkv.attention import Mask, RopeRotation, attend, frequencies, rope_rotation
from qkv.kernels import ACTIVATIONS
from qkv.kernels.training import NO_DROPOUT, AttentionSpec, DropoutMask, training_kernels
from qkv.model.output import LazyLogits
from qkv.training.loss import fused_cross_entropy
from qkv.training.optimizer import QUINTIC, newton_schulz

pytestmark = needs_compiler

SIZES = [(1, 2), (3, 5), (7, 64), (13, 127), (301, 130)]
TORCH_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu2": lambda x: F.relu(x).square(),
}


@pytest.fixture(autouse=True)
def _same_numbers_each_time() -> None:
    torch.manual_seed(0)


def close(ours: Tensor | None, theirs: Tensor) -> None:
    """To 1e-5 of the largest number, or of 1/10: what is smaller comes as a difference of larger
    ones.
    """
    assert ours is not None
    theirs = theirs.detach()
    scale = max(0.1, float(theirs.abs().max()))
    assert float((ours - theirs).abs().max()) <= 1e-5 * scale


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("shape", SIZES)
def test_a_norm_and_its_gradients_are_torchs(shape: tuple[int, int], shifted: bool) -> None:
    x, grad_out = torch.randn(shape) * 3 + 1, torch.randn(shape)
    gain, shift = torch.randn(2, shape[1]).unbind()
    given = [t.clone().requires_grad_() for t in (x, gain, shift)]
    expected = F.layer_norm(given[0], shape[1:], given[1], given[2] if shifted else None, 1e-5)
    out, sizes = training_kernels().layer_norm(x, gain, shift if shifted else None, 1e-5)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    grads = torch.autograd.grad(expected, given[: 2 + shifted], grad_out)
    ours = training_kernels().layer_norm_backward(x, gain, sizes, grad_out, shifted)
    for mine, theirs in zip(ours, grads, strict=False):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-5)
    assert shifted or ours[2] is None


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", SIZES)
def test_an_activation_and_its_gradient_are_torchs(name: str, shape: tuple[int, int]) -> None:
    x, grad_out = torch.randn(shape) * 3, torch.randn(shape)
    given = x.clone().requires_grad_()
    expected = TORCH_ACTIVATIONS[name](given)
    close(training_kernels().activation(x, ACTIVATIONS[name], NO_DROPOUT), expected)
    (grad,) = torch.autograd.grad(expected, given, grad_out)
    close(training_kernels().activation_backward(x, grad_out, ACTIVATIONS[name], NO_DROPOUT), grad)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_is_no_number_is_bent_as_torch_bends_it(name: str) -> None:
    x, grad_out = torch.randn(3, 37), torch.randn(3, 37)
    x[1, 20] = torch.nan
    given = x.clone().requires_grad_()
    expected = TORCH_ACTIVATIONS[name](given)
    (grad,) = torch.autograd.grad(expected, given, grad_out)
    for ours, theirs in (
        (training_kernels().activation(x, ACTIVATIONS[name], NO_DROPOUT), expected.detach()),
        (training_kernels().activation_backward(x, grad_out, ACTIVATIONS[name], NO_DROPOUT), grad),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_backward_drops_what_forward_dropped(name: str) -> None:
    kernels, kind = training_kernels(), ACTIVATIONS[name]
    x, grad_out, mask = torch.randn(17, 37), torch.randn(17, 37), DropoutMask(12345, 77)
    factors = kernels.dropout_add(None, torch.ones_like(x), mask)
    expected = kernels.activation(x, kind, NO_DROPOUT) * factors
    assert torch.equal(kernels.activation(x, kind, mask), expected)
    grad = kernels.activation_backward(x, grad_out * factors, kind, NO_DROPOUT)
    assert torch.equal(kernels.activation_backward(x, grad_out, kind, mask), grad)
    assert torch.equal(kernels.dropout_add(x, grad_out, mask), grad_out * factors + x)


@pytest.mark.parametrize("dropped", [1, 38, 128, 255])
def test_as_many_are_dropped_as_the_chance_says(dropped: int) -> None:
    kept = training_kernels().dropout_add(None, torch.ones(1024, 1024), DropoutMask(7, dropped))
    assert kept.unique().tolist() == pytest.approx([0.0, 256 / (256 - dropped)])
    share = float((kept == 0).double().mean())
    assert abs(share - dropped / 256) < 0.002


def test_other_seeds_and_other_places_drop_others() -> None:
    grids = torch.stack(
        [
            training_kernels().dropout_add(None, torch.ones(512, 512), DropoutMask(seed, 128))
            for seed in (1, 2, 2**32 + 1)
        ]
    )
    signs = grids - 1.0  # ±1
    near = [
        (signs[0] * signs[1]).mean(),
        (signs[0] * signs[2]).mean(),
        (signs[0, 1:] * signs[0, :-1]).mean(),
        (signs[0, :, 1:] * signs[0, :, :-1]).mean(),
        (signs[0, :, 64:] * signs[0, :, :-64]).mean(),
    ]
    assert max(abs(float(c)) for c in near) < 0.01


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(1, 2, 16), (5, 17, 48), (131, 6001, 32)])
def test_a_cross_entropy_and_its_gradients_are_torchs(
    shape: tuple[int, int, int], smoothing: float, biased: bool
) -> None:
    N, V, D = shape
    given = [torch.randn(N, D), torch.randn(V, D), torch.randn(V)][: 2 + biased]
    targets = torch.randint(V, (N,))
    learnt = [t.double().requires_grad_() for t in given]  # in float32 torch's are 6e-5 off
    expected = F.cross_entropy(
        F.linear(*learnt), targets, reduction="none", label_smoothing=smoothing
    )
    grads = torch.autograd.grad(expected.sum(), learnt)
    table = (given[0], given[1], given[2] if biased else None)
    losses, *ours = training_kernels().cross_entropy(*table, targets, smoothing)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(ours, grads, strict=False):
        close(mine, theirs)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("questions", [1, 24, 131])
def test_two_answers_to_a_question_are_judged_as_by_torch(questions: int, biased: bool) -> None:
    """Neighbouring rows; 131 pairs are more than a core holds at a time."""
    V, D, price = 601, 32, 1.5
    given = [torch.randn(2 * questions, D), torch.randn(V, D) / 3, torch.randn(V)][: 2 + biased]
    targets = torch.randint(V, (questions,)).repeat_interleave(2)
    learnt = [t.clone().requires_grad_() for t in given]
    factors = LazyLogits(learnt[0], learnt[1], learnt[2] if biased else None, None)
    expected = fused_cross_entropy(factors, targets, 0.1, r_drop=price)
    grads = torch.autograd.grad(expected, learnt)
    table = (given[0], given[1], given[2] if biased else None)
    losses, *ours = training_kernels().cross_entropy(*table, targets, 0.1, price)
    torch.testing.assert_close(losses.sum(), expected.detach(), rtol=1e-5, atol=1e-4)
    for mine, theirs in zip(ours, grads, strict=False):
        close(mine, theirs)


def test_a_target_that_is_no_token_is_refused() -> None:
    states, table = torch.randn(2, 16), torch.randn(40, 16)
    for wrong in (-1, 40):
        with pytest.raises(IndexError, match="a target is not one of 40 tokens"):
            training_kernels().cross_entropy(states, table, None, torch.tensor([3, wrong]), 0.1)
    with pytest.raises(TypeError, match="takes pairs of rows, not 1 rows"):
        training_kernels().cross_entropy(
            states[:1], table, None, torch.tensor([3]), 0.1, r_drop=1.0
        )


def test_a_score_that_is_no_number_shows() -> None:
    states = torch.randn(3, 16)
    states[1, 7] = float("nan")
    losses, *_ = training_kernels().cross_entropy(
        states, torch.randn(40, 16), None, torch.tensor([1, 2, 3]), 0.1
    )
    assert losses.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (7, 33, 5), (13, 65, 400), (100, 130, 801), (9, 16, 0), (0, 16, 8), (100, 272, 401),
     (211, 304, 193), (1153, 48, 577)],
)  # fmt: skip
def test_a_product_is_torchs_however_its_factors_lie(
    shape: tuple[int, int, int], added: bool
) -> None:
    M, N, K = shape
    a, b, sums = torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)
    expected = a @ b + sums if added else a @ b
    for left in (a, a.mT.contiguous().mT):
        for right in (b, b.mT.contiguous().mT):
            ours = training_kernels().gemm(left, right, sums.clone(), added)
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 7, 5), (2, 33, 100), (2, 100, 33), (3, 17, 17), (2, 40, 79)])
def test_matrices_are_made_orthogonal_as_torch_makes_them(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape)
    ours = training_kernels().newton_schulz(matrices, QUINTIC, 5)
    torch.testing.assert_close(ours, newton_schulz(matrices, 5), rtol=1e-4, atol=1e-5)


def heads_of(
    q_counts: list[int], k_counts: list[int], heads: int, kv_heads: int, width: int, causal: bool,
    normed: bool, turned: bool,
) -> AttentionSpec:  # fmt: skip
    q, k = torch.tensor(q_counts), torch.tensor(k_counts)
    starts = [counts.cumsum(0) - counts for counts in (q, k)]
    turn = rope_rotation(torch.arange(max(q_counts + k_counts)), frequencies(width))
    gains = torch.rand(2, width) + 0.5
    return AttentionSpec(
        heads, kv_heads, width, starts[0], q, starts[1], k, torch.zeros_like(q), width**-0.5,
        causal, turn.cos if turned else None, turn.sin if turned else None,
        gains[0] if normed else None, gains[1] if normed else None, 1e-5, 1e-5,
    )  # fmt: skip


def slowly(
    n: AttentionSpec,
    own: Tensor,
    other: Tensor | None,
    q_gain: Tensor | None,
    k_gain: Tensor | None,
) -> Tensor:
    """Text by text through the package's own attention."""
    columns = [n.heads * n.head_width, n.kv_heads * n.head_width, n.kv_heads * n.head_width]
    parts = own.split(columns, -1) if other is None else (own, *other.split(columns[1:], -1))
    seen = []
    for b in range(len(n.q_starts)):
        places = [(n.q_starts, n.q_counts), (n.k_starts, n.k_counts), (n.k_starts, n.k_counts)]
        q, k, v = (
            part[at[b] : at[b] + count[b]].unflatten(-1, (-1, n.head_width)).transpose(0, 1)[None]
            for part, (at, count) in zip(parts, places, strict=True)
        )
        if q_gain is not None:
            q = F.layer_norm(q, (n.head_width,), q_gain, None, n.q_eps)
            k = F.layer_norm(k, (n.head_width,), k_gain, None, n.k_eps)
        if n.cos is not None and n.sin is not None:
            q, k = (
                RopeRotation(n.cos[: t.shape[2]], n.sin[: t.shape[2]], False).rotate(t)
                for t in (q, k)
            )
        mixed = attend(q, k, v, Mask.causal() if n.causal else Mask.full())
        seen.append(mixed[0].transpose(0, 1).flatten(-2))
    return torch.cat(seen)


@pytest.mark.parametrize(
    "case",
    [
        ([3, 17, 1, 40], None, 4, 2, 32, True, True, True),
        ([3, 17, 1, 40], None, 4, 4, 32, False, True, True),
        ([3, 17, 1, 40], [5, 2, 33, 0], 4, 4, 48, False, True, False),
        ([200, 71], None, 3, 3, 64, True, False, False),
        ([130, 71], None, 3, 1, 16, False, True, False),
        ([66], None, 2, 1, 96, True, False, True),
    ],
)
def test_attention_and_its_gradients_are_torchs(
    case: tuple[list[int], list[int] | None, int, int, int, bool, bool, bool],
) -> None:
    q_counts, k_counts, heads, kv_heads, width, *rest = case
    n = heads_of(q_counts, k_counts or q_counts, heads, kv_heads, width, *rest)
    both = 2 * kv_heads * width
    own = torch.randn(sum(q_counts), heads * width + (0 if k_counts else both))
    other = torch.randn(sum(k_counts), both) if k_counts else None
    given = [None if t is None else t.clone().requires_grad_() for t in
             (own, other, n.q_gain, n.k_gain)]  # fmt: skip
    expected = slowly(n, *given)  # type: ignore[arg-type]
    out, logs = training_kernels().attention(n, own, other)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    grad_out = torch.randn_like(out)
    grads = torch.autograd.grad(expected, [t for t in given if t is not None], grad_out)
    ours = training_kernels().attention_backward(n, own, other, out, logs, grad_out)
    for mine, theirs in zip([t for t in ours if t is not None], grads, strict=True):
        close(mine, theirs)
