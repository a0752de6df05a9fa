"""The fused kernel equals the reference: outputs and gradients, for every mask there is."""

import importlib
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attention.mask_cases import KINDS, composed, one_mask
from torch import Tensor

from qkv.attention import AlibiMask, BucketMask, Mask, attend, fused, reference
from qkv.errors import MaskError

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
PRECISIONS = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "float64"])
few = settings(max_examples=25, deadline=None)
some = settings(max_examples=120, deadline=None)


@dataclass(frozen=True)
class Problem:
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    scale: float | None


@st.composite
def problems(draw: st.DrawFn, dtype: torch.dtype, kind: str | None = None) -> Problem:
    """Random sizes, few enough to be fast: grouped heads, T ≠ S both ways, any value width."""
    B, K, group = draw(st.sampled_from([(2, 3, 2), (1, 1, 5), (3, 2, 1), (2, 1, 1)]), label="B K G")
    T = draw(st.integers(1, 11), label="T")
    S = draw(st.integers(1, 11), label="S")
    E = draw(st.sampled_from([1, 5, 8]), label="E")
    width = draw(st.sampled_from([1, 5, 13]), label="value width")
    H = K * group
    q, k, v = numbers((B, H, T, E), (B, K, S, E), (B, K, S, width), dtype=dtype)
    mask = one_mask(draw, kind, B, H, T, S) if kind else composed(draw, B, H, T, S)
    return Problem(q, k, v, mask, draw(st.sampled_from([None, 1.0, 0.37]), label="scale"))


def numbers(*shapes: tuple[int, ...], dtype: torch.dtype, seed: int = 17) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def backward(problem: Problem, kernel: object) -> list[Tensor]:
    """The output and the gradients of q, k and v under some random pull on the output."""
    inputs = [t.clone().requires_grad_() for t in (problem.q, problem.k, problem.v)]
    out = kernel(*inputs, problem.mask, problem.scale)
    (pull,) = numbers(tuple(out.shape), dtype=out.dtype, seed=23)
    return [out.detach(), *torch.autograd.grad(out, inputs, pull)]


def reference_output(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None) -> Tensor:
    return reference(q, k, v, mask, scale).output


def assert_agree(problem: Problem, kernel: object = fused) -> None:
    tolerance = TOLERANCE[problem.q.dtype]
    expected = backward(problem, reference_output)
    for name, got, want in zip("oqkv", backward(problem, kernel), expected, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(
            got, want, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
        )


@pytest.fixture
def strips_of(monkeypatch: pytest.MonkeyPatch) -> object:
    """Sets how many queries the fused kernel takes at a time."""
    module = importlib.import_module("qkv.attention.attend")  # the name in the package: a function
    return lambda size: monkeypatch.setattr(module, "CHUNK", size)


@PRECISIONS
@pytest.mark.parametrize("kind", KINDS)
@few
@given(data=st.data())
def test_fused_equals_reference_for_each_mask(
    kind: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    assert_agree(data.draw(problems(dtype, kind)))


@PRECISIONS
@some
@given(data=st.data())
def test_fused_equals_reference_for_masks_joined_together(
    dtype: torch.dtype, data: st.DataObject
) -> None:
    assert_agree(data.draw(problems(dtype)))


@PRECISIONS
@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("kind", [*KINDS, None], ids=lambda kind: kind or "joined")
def test_fused_equals_reference_in_strips(
    kind: str | None, size: int, dtype: torch.dtype, strips_of: object
) -> None:
    strips_of(size)

    @settings(max_examples=12, deadline=None)
    @given(problem=problems(dtype, kind))
    def check(problem: Problem) -> None:
        assert_agree(problem)

    check()


LONG = {
    "causal": Mask.causal(),
    "window": Mask.window(29, 3),
    "causal window": Mask.causal() & Mask.window(41),
    "causal padding": Mask.causal() & Mask.padding(torch.tensor([307])),
    "documents": Mask.causal() & Mask.documents(torch.arange(523)[None] // 97),
    "alibi": Mask.causal() & Mask((AlibiMask(torch.tensor([0.5, 0.07])),)),
}


@pytest.mark.parametrize("name", LONG)
def test_fused_equals_reference_where_the_real_strips_end(name: str) -> None:
    # Two full chunks and a short one.
    T = 523
    E = 3
    q, k, v = numbers((1, 2, T, E), (1, 1, T, E), (1, 1, T, 5), dtype=torch.float32)
    assert_agree(Problem(q, k, v, LONG[name], None))


@pytest.mark.parametrize(("T", "S"), [(601, 307), (307, 601)])
def test_fused_equals_reference_in_real_strips_where_queries_and_keys_differ_in_number(
    T: int, S: int
) -> None:
    q, k, v = numbers((1, 2, T, 3), (1, 1, S, 3), (1, 1, S, 5), dtype=torch.float32)
    assert_agree(Problem(q, k, v, Mask.causal() & Mask.window(67), None))


@few
@given(data=st.data())
def test_attend_equals_the_reference_too(data: st.DataObject) -> None:
    assert_agree(data.draw(problems(torch.float64)), attend)


RELATIVE = {
    "alone": Mask.full(),
    "causal": Mask.causal(),
    "window": Mask.window(2, 1),
    "alibi": Mask((AlibiMask(torch.tensor([0.5, 0.07])),)),
    "buckets": Mask(
        (BucketMask(torch.arange(16.0).view(8, 2) / 7, max_distance=9, bidirectional=True),)
    ),
    "explicit": Mask.explicit(torch.arange(17)[:, None] % 3 != torch.arange(17) % 5),
}


@PRECISIONS
@pytest.mark.parametrize("name", RELATIVE)
@pytest.mark.parametrize(
    "lengths", [(17,), (5, 5, 7), (1, 3, 3, 0, 3, 7), (0, 17, 0), (2,) * 7 + (3,)], ids=str
)
def test_packed_texts_equal_the_reference(
    name: str, lengths: tuple[int, ...], dtype: torch.dtype
) -> None:
    q, k, v = numbers((1, 2, 17, 3), (1, 1, 17, 3), (1, 1, 17, 5), dtype=dtype)
    assert_agree(Problem(q, k, v, Mask.packed(lengths) & RELATIVE[name], None))


def test_packed_texts_see_what_documents_see() -> None:
    ids = torch.tensor([[0, 0, 1, 2, 2, 2]])
    assert Mask.packed((2, 1, 3)).dense(6, 6).equal(Mask.documents(ids).dense(6, 6)[0, 0])


def test_packed_texts_of_another_total_are_refused() -> None:
    q, k, v = numbers((1, 2, 7, 3), (1, 2, 7, 3), (1, 2, 7, 3), dtype=torch.float32)
    with pytest.raises(MaskError, match=r"6 positions in all need B=1, T=6, S=6.*T=7"):
        fused(q, k, v, Mask.packed((2, 4)))
    with pytest.raises(MaskError, match="B=2"):
        fused(*(t.repeat(2, 1, 1, 1) for t in (q, k, v)), Mask.packed((2, 5)))


def test_attend_gives_a_learning_bias_its_gradient() -> None:
    B = 2
    H = 3
    T = 5
    S = 7
    E = 11
    q, k, v, pull = numbers(
        (B, H, T, E), (B, H, S, E), (B, H, S, E), (B, H, T, E), dtype=torch.float64
    )
    (table,) = numbers((1, H, T, S), dtype=torch.float64, seed=5)
    ours = table.clone().requires_grad_()
    plain = table.clone().requires_grad_()

    attend(q, k, v, Mask.bias(ours)).backward(pull)
    ((q @ k.mT / E**0.5 + plain).softmax(-1) @ v).backward(pull)

    torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-10, atol=1e-10)


def test_attend_gives_learned_distance_buckets_their_gradient() -> None:
    B = 2
    H = 3
    T = 5
    S = 7
    E = 11
    q, k, v, pull = numbers(
        (B, H, T, E), (B, H, S, E), (B, H, S, E), (B, H, T, E), dtype=torch.float64
    )
    (start,) = numbers((8, H), dtype=torch.float64, seed=5)
    ours = start.clone().requires_grad_()
    plain = start.clone().requires_grad_()

    attend(q, k, v, Mask((BucketMask(ours, max_distance=9, bidirectional=True),))).backward(pull)
    # query t stands at key t + 2; 4 buckets a side, of which 0 and 1 hold one distance each
    bucket = torch.tensor(
        [
            [2, 1, 0, 5, 6, 6, 6],
            [2, 2, 1, 0, 5, 6, 6],
            [2, 2, 2, 1, 0, 5, 6],
            [3, 2, 2, 2, 1, 0, 5],
            [3, 3, 2, 2, 2, 1, 0],
        ]
    )
    added = plain[bucket].permute(2, 0, 1)
    ((q @ k.mT / E**0.5 + added).softmax(-1) @ v).backward(pull)

    torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-10, atol=1e-10)


def test_a_learning_bias_without_gradients_gives_the_same_output() -> None:
    q, k, v = numbers((2, 3, 5, 11), (2, 3, 7, 11), (2, 3, 7, 13), dtype=torch.float64)
    mask = Mask.bias(torch.randn(5, 7, dtype=torch.float64).requires_grad_())
    with torch.no_grad():
        quick = attend(q, k, v, mask)
    torch.testing.assert_close(quick, attend(q, k, v, mask).detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("T", "S"), [(0, 3), (3, 0)])
def test_no_queries_or_no_keys_give_what_the_reference_gives(T: int, S: int) -> None:
    q = torch.ones(2, 3, T, 5)
    k = torch.ones(2, 3, S, 5)
    v = torch.ones(2, 3, S, 7)
    for mask in (Mask.full(), Mask.causal(), Mask.window(1)):
        assert torch.equal(fused(q, k, v, mask), reference(q, k, v, mask).output)


@pytest.mark.slow
@PRECISIONS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 256])
@few
@given(data=st.data())
def test_the_capped_kernel_agrees_for_every_mask_in_strips_and_whole(
    kind: str, dtype: torch.dtype, size: int, data: st.DataObject
) -> None:
    problem = data.draw(problems(dtype, kind))
    cap = 0.8
    module = importlib.import_module("qkv.attention.attend")
    usual = module.CHUNK
    module.CHUNK = size
    try:
        expected = backward(problem, lambda *args: reference(*args, cap).output)
        actual = backward(problem, lambda *args: attend(*args, cap))
    finally:
        module.CHUNK = usual
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_a_cap_bounds_the_scores_and_leaves_small_ones_nearly_alone() -> None:
    q, k, v = numbers((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4), dtype=torch.float64)
    steps = reference(100 * q, k, v, cap=2.0)
    assert (steps.capped.abs() <= 2.0).all()
    torch.testing.assert_close(steps.capped, 2.0 * torch.tanh(steps.scaled / 2.0))
    gentle = reference(q, k, v, cap=1e4)
    torch.testing.assert_close(gentle.capped, gentle.scaled, rtol=1e-6, atol=1e-6)
