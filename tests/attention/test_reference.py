"""The reference against the formula on paper, and what both kernels promise at the edges."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from qkv.attention import Mask, attend, fused, reference, softmax
from qkv.errors import MaskError, ShapeError

B = 2
H = 6
K = 3
T = 5
S = 7
E = 11
VALUE = 13

BOTH_KERNELS = pytest.mark.parametrize(
    "kernel", [fused, lambda *args: reference(*args).output], ids=["fused", "reference"]
)
Kernel = Callable[..., Tensor]


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def triple(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    return (
        numbers(B, H, T, E, seed=1, dtype=dtype),
        numbers(B, K, S, E, seed=2, dtype=dtype),
        numbers(B, K, S, VALUE, seed=3, dtype=dtype),
    )


def on_paper(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, scale: float) -> Tensor:
    """Row by row, one number at a time, as one would with a pencil."""
    group = q.shape[1] // k.shape[1]
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                keys = [s for s in range(k.shape[2]) if seen[b, h, t, s]]
                query = q[b, h, t].numpy()
                scores = [float(query @ k[b, h // group, s].numpy()) * scale for s in keys]
                total = sum(math.exp(score) for score in scores)
                for s, score in zip(keys, scores, strict=True):
                    out[b, h, t] += math.exp(score) / total * v[b, h // group, s].numpy()
    return torch.from_numpy(out)


EVERYWHERE = torch.ones(B, H, T, S, dtype=torch.bool)
LITERAL = torch.tensor(
    [
        [1, 0, 0, 1, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
        [0, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 1],
    ],
    dtype=torch.bool,
)


@BOTH_KERNELS
@pytest.mark.parametrize(
    ("scale", "factor"), [(None, 1 / math.sqrt(E)), (1.0, 1.0), (0.37, 0.37), (0.0, 0.0)]
)
def test_attention_equals_the_formula_on_paper(
    kernel: Kernel, scale: float | None, factor: float
) -> None:
    q, k, v = triple()
    for mask, seen in (
        (Mask.full(), EVERYWHERE),
        (Mask.explicit(LITERAL), LITERAL.expand(B, H, T, S)),
    ):
        torch.testing.assert_close(
            kernel(q, k, v, mask, scale), on_paper(q, k, v, seen, factor), rtol=1e-10, atol=1e-10
        )


@BOTH_KERNELS
def test_three_words_computed_by_hand(kernel: Kernel) -> None:
    q = torch.tensor([[[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]]], dtype=torch.float64)
    k = torch.tensor([[[[math.log(3.0), 0.0], [0.0, math.log(2.0)]]]], dtype=torch.float64)
    v = torch.tensor([[[[4.0], [20.0]]]], dtype=torch.float64)
    # e^scores are (3, 1), (1, 4), (3, 2): shares (3/4, 1/4), (1/5, 4/5), (3/5, 2/5)
    expected = torch.tensor([[[[8.0], [16.8], [10.4]]]], dtype=torch.float64)
    torch.testing.assert_close(kernel(q, k, v, Mask.full(), 1.0), expected)


@BOTH_KERNELS
def test_each_group_of_query_heads_reads_its_own_key_head(kernel: Kernel) -> None:
    q, k, v = triple()
    group = H // K
    apart = [
        kernel(q[:, h : h + 1], k[:, h // group, None], v[:, h // group, None], Mask.full(), None)
        for h in range(H)
    ]
    torch.testing.assert_close(kernel(q, k, v, Mask.full(), None), torch.cat(apart, dim=1))


def test_the_steps_follow_from_each_other() -> None:
    q, k, v = triple()
    bias = numbers(T, S, seed=4)
    steps = reference(q, k, v, Mask.explicit(LITERAL) & Mask.bias(bias), 0.37)
    keys, values = (t.repeat_interleave(H // K, dim=1) for t in (k, v))

    assert steps.scores.shape == steps.weights.shape == (B, H, T, S)
    torch.testing.assert_close(steps.scores, torch.einsum("bhte,bhse->bhts", q, keys))
    torch.testing.assert_close(steps.scaled, steps.scores * 0.37)
    hidden = ~LITERAL.expand(B, H, T, S)
    assert torch.equal(steps.masked == -torch.inf, hidden)
    torch.testing.assert_close(steps.masked[~hidden], (steps.scaled + bias)[~hidden])
    assert (steps.weights[hidden] == 0).all()
    torch.testing.assert_close(steps.output, torch.einsum("bhts,bhsw->bhtw", steps.weights, values))


def test_weights_of_a_row_sum_to_one_or_to_zero_where_nothing_is_seen() -> None:
    q, k, v = triple()
    sums = reference(q, k, v, Mask.explicit(LITERAL)).weights.sum(-1)
    expected = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64).expand(B, H, T)
    torch.testing.assert_close(sums, expected)


def test_softmax_of_nothing_but_minus_infinity_is_zeros() -> None:
    inf = math.inf
    rows = torch.tensor([[-inf, -inf, -inf], [0.0, -inf, 0.0], [math.log(3.0), 0.0, -inf]])
    expected = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.75, 0.25, 0.0]])
    torch.testing.assert_close(softmax(rows), expected)


@BOTH_KERNELS
@pytest.mark.parametrize(
    "mask",
    [
        Mask.explicit(LITERAL),
        Mask.explicit(torch.zeros(T, S, dtype=torch.bool)),
        Mask.padding(torch.tensor([0, 3])),
        Mask.documents(torch.arange(B * T).view(B, T), torch.full((B, S), 99)),
        Mask.explicit(LITERAL) & Mask.bias(numbers(T, S, seed=4)),
    ],
    ids=["literal row", "no key at all", "length 0", "no such document", "with a bias"],
)
def test_a_query_that_sees_nothing_gets_zeros_and_passes_no_gradient(
    kernel: Kernel, mask: Mask
) -> None:
    q, k, v = (t.requires_grad_() for t in triple())
    out = kernel(q, k, v, mask, None)
    gradients = torch.autograd.grad(out, (q, k, v), numbers(*out.shape, seed=5))
    blind = ~mask.dense(T, S).expand(B, H, T, S).any(-1)

    assert blind.any()
    assert (out[blind] == 0).all()
    assert (gradients[0][blind] == 0).all()
    for t in (out, *gradients):
        assert torch.isfinite(t).all()


@BOTH_KERNELS
def test_a_key_that_nobody_sees_gets_no_gradient(kernel: Kernel) -> None:
    q, k, v = (t.requires_grad_() for t in triple())
    out = kernel(q, k, v, Mask.padding(torch.tensor([4, 0])), None)
    _, to_k, to_v = torch.autograd.grad(out, (q, k, v), numbers(*out.shape, seed=5))
    for gradient in (to_k, to_v):
        assert (gradient[0, :, :4] != 0).any()
        assert (gradient[0, :, 4:] == 0).all()
        assert (gradient[1] == 0).all()


@BOTH_KERNELS
@pytest.mark.parametrize("keys", [1, 5, 7, 17])
@pytest.mark.parametrize("mask", [Mask.full(), Mask.causal(), Mask.window(3)], ids=lambda m: str(m))
def test_a_real_nan_still_shows(kernel: Kernel, mask: Mask, keys: int) -> None:
    q = numbers(B, H, 5, E)
    k = numbers(B, K, keys, E)
    v = numbers(B, K, keys, VALUE)
    q[1, 2, 4, 3] = math.nan
    out = kernel(q, k, v, mask, None)
    assert out[1, 2, 4].isnan().all()
    assert out.isnan().sum() == VALUE


@BOTH_KERNELS
@pytest.mark.parametrize("which", ["k", "v"])
def test_a_nan_in_a_key_or_value_that_is_seen_still_shows(kernel: Kernel, which: str) -> None:
    q, k, v = triple()
    (k if which == "k" else v)[1, 2, 0, 4] = math.nan
    out = kernel(q, k, v, Mask.explicit(LITERAL), None)
    its_group = out[1, 4:6]
    assert its_group[:, [0, 2]].isnan().any(-1).all()  # the rows of the grid that see key 0


@BOTH_KERNELS
@pytest.mark.parametrize(
    "mask",
    [Mask.full(), Mask.causal(), Mask.explicit(LITERAL), Mask.bias(numbers(T, S, seed=4).float())],
    ids=["full", "causal", "explicit", "bias"],
)
def test_half_precision_comes_back_in_half_precision_and_close(kernel: Kernel, mask: Mask) -> None:
    full = triple(torch.float32)
    half = [t.bfloat16() for t in full]
    out = kernel(*half, mask, None)
    assert out.dtype == torch.bfloat16
    exact = reference(*(t.float() for t in half), mask).output
    torch.testing.assert_close(out.float(), exact, rtol=0.02, atol=0.02)


@BOTH_KERNELS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("level", [300.0, -100_000.0])
def test_a_bias_in_single_precision_is_not_rounded_to_half(
    kernel: Kernel, dtype: torch.dtype, level: float
) -> None:
    half = [t.to(dtype) for t in triple(torch.float32)]
    bias = numbers(T, S, seed=4).float()
    raised = kernel(*half, Mask.bias(bias + level), None)  # the same for every key: no difference
    exact = reference(*(t.float() for t in half), Mask.bias(bias)).output
    torch.testing.assert_close(raised.float(), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@BOTH_KERNELS
def test_single_and_double_precision_stay_what_they_are(kernel: Kernel, dtype: torch.dtype) -> None:
    assert kernel(*triple(dtype), Mask.causal(), None).dtype == dtype


def test_self_attention_with_nothing_hidden_equals_torch() -> None:
    x = numbers(B, H, T, E)
    torch.testing.assert_close(
        reference(x, x, x).output, F.scaled_dot_product_attention(x, x, x), rtol=1e-10, atol=1e-10
    )


def test_causal_self_attention_equals_torch() -> None:
    q, k, v = (numbers(B, H, T, E, seed=seed) for seed in (1, 2, 3))
    torch.testing.assert_close(
        reference(q, k, v, Mask.causal()).output,
        F.scaled_dot_product_attention(q, k, v, is_causal=True),
        rtol=1e-10,
        atol=1e-10,
    )


def test_grouped_cross_attention_under_a_grid_equals_torch() -> None:
    q, k, v = triple()
    torch.testing.assert_close(
        reference(q, k, v, Mask.explicit(LITERAL)).output,
        F.scaled_dot_product_attention(q, k, v, attn_mask=LITERAL, enable_gqa=True),
        rtol=1e-10,
        atol=1e-10,
    )


def test_a_scale_of_one_leaves_the_scores_as_they_are() -> None:
    q, k, v = triple()
    steps = reference(q, k, v, scale=1.0)
    assert torch.equal(steps.scaled, steps.scores)
    assert not torch.allclose(steps.weights, reference(q, k, v).weights)


def test_no_scale_means_one_over_the_root_of_the_head_width() -> None:
    q, k, v = triple()
    steps = reference(q, k, v)
    torch.testing.assert_close(steps.scaled, steps.scores / math.sqrt(E))


def test_the_order_of_the_keys_does_not_matter_without_a_mask() -> None:
    q, k, v = triple()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    torch.testing.assert_close(attend(q, k, v), attend(q, k[:, :, order], v[:, :, order]))


@BOTH_KERNELS
@pytest.mark.parametrize(
    ("q", "k", "v", "says"),
    [
        ((2, 6, 5, 11), (2, 3, 7, 12), (2, 3, 7, 13), ["k has E=12", "q has E=11", "head width"]),
        ((2, 6, 5, 11), (2, 4, 7, 11), (2, 4, 7, 13), ["K=4", "H=6", "key/value heads"]),
        ((2, 3, 5, 11), (2, 6, 7, 11), (2, 6, 7, 13), ["K=6", "H=3"]),
        ((2, 6, 5, 11), (2, 3, 7, 11), (2, 3, 8, 13), ["v has S=8", "k has S=7", "key positions"]),
        ((2, 6, 5, 11), (2, 3, 7, 11), (2, 2, 7, 13), ["v has K=2", "k has K=3"]),
        ((2, 6, 5, 11), (3, 3, 7, 11), (3, 3, 7, 13), ["k has B=3", "q has B=2", "batch"]),
        ((6, 5, 11), (2, 3, 7, 11), (2, 3, 7, 13), ["q has shape (6, 5, 11)", "4 axes (B H T E)"]),
        ((2, 6, 5, 11), (2, 3, 7, 11), (2, 7, 13), ["v has shape (2, 7, 13)", "4 axes"]),
        ((2, 6, 5, 11), (2, 0, 7, 11), (2, 0, 7, 13), ["K=0", "H=6"]),
    ],
)
def test_sizes_that_do_not_fit_are_named_with_both_numbers(
    kernel: Kernel, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], says: list[str]
) -> None:
    with pytest.raises(ShapeError) as caught:
        kernel(torch.zeros(q), torch.zeros(k), torch.zeros(v), Mask.full(), None)
    message = str(caught.value)
    assert "\n" not in message
    for words in says:
        assert words in message


def test_attention_leaves_its_inputs_as_they_were() -> None:
    given = triple()
    before = [t.clone() for t in given]
    attend(*given, Mask.explicit(LITERAL) & Mask.causal())
    reference(*given, Mask.explicit(LITERAL) & Mask.causal())
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))


@pytest.mark.parametrize("mask", [None, "causal", torch.ones(5, 7, dtype=torch.bool)])
def test_what_is_no_mask_is_refused_with_the_way_to_make_one(mask: object) -> None:
    q = torch.zeros(1, 1, 5, 3)
    with pytest.raises(MaskError, match=r"a Mask is needed: Mask.causal\(\), or Mask.explicit"):
        attend(q, q, q, mask)


def test_what_is_no_tensor_of_floats_is_refused() -> None:
    integers = torch.zeros(1, 1, 5, 3, dtype=torch.long)
    with pytest.raises(ShapeError, match=r"q holds torch.int64"):
        attend(integers, integers, integers)
    with pytest.raises(ShapeError, match="q is a list, but a torch tensor is needed"):
        attend([[1.0]], integers, integers)
    with pytest.raises(ShapeError, match=r"torch.float32, torch.float64 and torch.float32"):
        attend(integers.float(), integers.double(), integers.float())


def test_a_mask_composes_only_with_a_mask() -> None:
    with pytest.raises(MaskError, match="not with a Tensor"):
        Mask.causal() & torch.ones(3, 3)
