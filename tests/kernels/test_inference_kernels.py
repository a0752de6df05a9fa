"""Every inference kernel equals its slower counterpart in torch, whatever the input."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.native import needs_compiler
from torch import Tensor, nn

from qkv.attention import Mask, reference
from qkv.attention.mask import Tile
from qkv.engine.optimized.kernel_modules import KernelLinear
from qkv.engine.optimized.linear import LinearWeights
from qkv.engine.optimized.quantized import (
    QuantizedLinear,
    QuantizedMatrix,
    quantize_rows,
    row_absmax,
)
from qkv.kernels import ACTIVATIONS, Matrix, PackedMatrix, inference_kernels

pytestmark = needs_compiler

TORCH_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu2": lambda x: F.relu(x).square(),
}
B, H, K, T, S, E = 3, 6, 2, 3, 7, 5


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def grid(*shape: int) -> Tensor:
    """About half of it seen."""
    return numbers(*shape) > 0


MASKS = {
    "everything": Mask.full(),
    "nothing after": Mask.causal(),
    "real keys": Mask.padding(torch.tensor([7, 4, 1])),
    "a grid a row": Mask.explicit(grid(B, 1, T, S)),
    "a grid a head": Mask.explicit(grid(1, H, T, S)),
    "some queries see all": Mask.explicit(torch.tensor([[True], [False], [True]])),
    "a grid that was turned": Mask.explicit(grid(S, T).t()),
    "near keys": Mask.window(before=2, after=1),
    "texts": Mask.documents(
        torch.tensor([[0, 1, 1]] * B), torch.tensor([[0, 0, 0, 1, 1, 1, 2]] * B)
    ),
    "nothing": Mask.explicit(torch.zeros(T, S, dtype=torch.bool)),
    "both": Mask.causal() & Mask.padding(torch.tensor([7, 4, 1])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("columns", [1, 16, 53])
def test_sums_are_bent_as_torch_bends_them_and_rounded(name: str, columns: int) -> None:
    sums = torch.linspace(-3000, 3000, 41 * columns).int().view(41, columns)
    step, scale, bias = torch.full((41,), 0.1), torch.full((columns,), 0.1), numbers(columns)
    want = TORCH_ACTIVATIONS[name](sums * 0.01 + bias)
    whole, following = inference_kernels().dequantize_activate_quantize(
        sums, step, scale, bias, ACTIVATIONS[name]
    )
    distance = (whole * following[:, None] - want).abs().amax(dim=1)
    assert distance.le(0.501 * following + 3e-5).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_single_number_is_bent_exactly(name: str) -> None:
    """A row of one number is 127 or −127 steps, so the step shows what the activation gave."""
    sums = torch.arange(-1500, 1500, dtype=torch.int32)[:, None]
    step, one = torch.full((3000,), 0.01), torch.ones(1)
    whole, following = inference_kernels().dequantize_activate_quantize(
        sums, step, one, torch.zeros(1), ACTIVATIONS[name]
    )
    got, want = whole[:, 0] * following, TORCH_ACTIVATIONS[name](sums[:, 0] * 0.01)
    torch.testing.assert_close(got, want, rtol=3e-6, atol=2e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_is_no_number_stays_none(name: str) -> None:
    sums, step = torch.ones(2, 32, dtype=torch.int32), torch.tensor([torch.nan, 1.0])
    _, following = inference_kernels().dequantize_activate_quantize(
        sums, step, torch.ones(32), torch.zeros(32), ACTIVATIONS[name]
    )
    assert following.isnan().tolist() == [True, False]


@pytest.mark.parametrize("width", [1, 8, 37])
def test_a_sum_and_its_norm(width: int) -> None:
    norm = nn.LayerNorm(width, eps=1e-5)
    with torch.no_grad():
        norm.weight.copy_(numbers(width, seed=2))
        norm.bias.copy_(numbers(width, seed=3))
    x, more = 100 + numbers(2, 9, width), numbers(9, 2, width, seed=4).transpose(0, 1)
    with torch.inference_mode():
        got = inference_kernels().add_layer_norm(x.clone(), more, norm)
        torch.testing.assert_close(got, norm(x + more), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (5, 37), (300, 64)])
def test_rows_are_rounded_as_torch_rounds_them(shape: tuple[int, int]) -> None:
    x = numbers(*shape) * torch.logspace(-6, 6, shape[0])[:, None]
    x[0] = 0.0
    whole, step = inference_kernels().quantize_rows(x)
    size = row_absmax(x)
    torch.testing.assert_close(step, size[:, 0] / 127, rtol=1e-6, atol=0.0)
    assert (whole.int() - quantize_rows(x, size).int()).abs().max() <= 1  # a half may go either way
    assert (whole.float() * step[:, None] - x).abs().amax(dim=1).le(0.5001 * step).all()


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_a_row_with_what_is_no_number_has_no_step(wrong: float) -> None:
    x = numbers(3, 40)
    x[1, 17] = wrong
    _, step = inference_kernels().quantize_rows(x)
    assert step.isfinite().tolist() == [True, False, True]


def test_sums_become_what_they_stand_for() -> None:
    sums = torch.randint(-(2**24), 2**24, (7, 53), dtype=torch.int32)
    step, scale, bias = numbers(7).abs() * 1e-4, numbers(53).abs() * 1e-3, numbers(53, seed=5)
    plain = sums * step[:, None] * scale + bias
    got = inference_kernels().dequantize(sums, step, scale, bias)
    torch.testing.assert_close(got, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("rows", [1, B])
def test_attention_of_a_few_queries_is_the_reference(name: str, rows: int) -> None:
    mask = MASKS[name]
    if rows == 1:
        mask = Mask.explicit(mask.dense(T, S).expand(B, H, T, S)[:1])
    dense = mask.allowed_in(Tile.full(T, S, torch.device("cpu")))
    q = numbers(rows, T, H, E).transpose(1, 2)  # as heads come out of a product
    room = numbers(2, rows, K, S + 4, E, seed=2)  # a cache with room to spare
    k, v = room[0, :, :, :S], room[1, :, :, :S]
    got = inference_kernels().attention_decode(q, k, v, dense, 0.3)
    torch.testing.assert_close(got, reference(q, k, v, mask, 0.3).output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [(1,), (3, 0, 17, 8, 1), (40, 64, 5), (4, 4, 4)])
@pytest.mark.parametrize("width", [1, 16, 37])
def test_attention_within_texts_of_one_row_is_the_reference(
    lengths: tuple[int, ...], width: int
) -> None:
    N = sum(lengths)
    together = numbers(1, N, (H + 2 * K) * width)  # as one product gives them
    q, k, v = (
        part.view(1, N, -1, width).transpose(1, 2)
        for part in together.split([H * width, K * width, K * width], dim=-1)
    )
    got = inference_kernels().attention_varlen(q, k, v, lengths, 0.3)
    want = reference(q, k, v, Mask.packed(lengths), 0.3).output
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_no_number_in_one_text_stays_in_that_text() -> None:
    q = numbers(1, 2, 30, 8)
    q[0, 1, 12] = torch.nan
    got = inference_kernels().attention_varlen(q, q, q, (10, 10, 10), 1.0)
    wrong = got.isnan().any(dim=-1).nonzero()
    assert set(wrong[:, 1].tolist()) == {1}
    assert set(wrong[:, 2].tolist()) == set(range(10, 20))


def test_a_query_that_is_no_number_shows_only_in_its_own_answer() -> None:
    q, k = numbers(2, H, 1, E), numbers(2, K, S, E)
    q[1, 3] = torch.nan
    got = inference_kernels().attention_decode(q, k, k, None, 1.0)
    assert got.isnan().any(dim=-1).nonzero().tolist() == [[1, 3, 0]]


@pytest.mark.parametrize("rows", [1, 5, 203])
@pytest.mark.parametrize("columns", [3, 64, 5000])
@pytest.mark.parametrize("biased", [True, False])
def test_a_single_row_times_a_matrix(rows: int, columns: int, biased: bool) -> None:
    weight, x = numbers(rows, columns), numbers(columns, seed=2)
    bias = numbers(rows, seed=3) if biased else None
    got = inference_kernels().matvec(Matrix.of(weight, None, bias), x)
    want = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-3)

    small = QuantizedLinear(LinearWeights(weight, bias))
    got = inference_kernels().matvec(Matrix.of(small.weight.values, small.weight.scale, bias), x)
    torch.testing.assert_close(got, small(x[None])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 5, 1024, 1025, 3001])
@pytest.mark.parametrize("biased", [True, False])
def test_the_likeliest_of_all_products(rows: int, biased: bool) -> None:
    weight, x = numbers(rows, 37), numbers(37, seed=2)
    bias = numbers(rows, seed=3) if biased else None
    small = QuantizedMatrix(weight)
    for matrix in (Matrix.of(weight, None, bias), Matrix.of(small.values, small.scale, bias)):
        scores = inference_kernels().matvec(matrix, x)
        for known in {1, max(1, rows - 3), rows}:
            at, logarithm = inference_kernels().argmax(matrix, x, known)
            want = scores[:known].double().log_softmax(dim=0)
            assert at == int(scores[:known].argmax())
            assert logarithm == pytest.approx(float(want[at]), abs=2e-6)


def test_the_first_of_equals_is_the_likeliest_and_what_is_forbidden_never() -> None:
    weight, bias = torch.ones(3000, 4), torch.zeros(3000)
    bias[:1500] = -torch.inf  # a whole block, and a part of the next
    at, logarithm = inference_kernels().argmax(Matrix.of(weight, None, bias), torch.ones(4), 3000)
    assert at == 1500
    assert logarithm == pytest.approx(-math.log(1500), abs=2e-6)


@pytest.mark.parametrize("place", [0, 1500, 2999])
@pytest.mark.parametrize("wrong", [torch.nan, -torch.nan, torch.inf])
def test_nothing_is_likely_beside_what_is_no_number(place: int, wrong: float) -> None:
    weight = torch.ones(3000, 4)
    weight[place] = wrong
    _, logarithm = inference_kernels().argmax(Matrix.of(weight, None, None), torch.ones(4), 3000)
    assert math.isnan(logarithm)


@pytest.mark.parametrize("known", [0, 6])
def test_only_rows_that_are_there_can_be_likely(known: int) -> None:
    weight = numbers(5, 4)
    with pytest.raises(IndexError):
        inference_kernels().argmax(Matrix.of(weight, None, None), torch.ones(4), known)


def test_a_row_of_a_matrix_in_8_bits() -> None:
    small = QuantizedMatrix(numbers(5, 37))
    matrix = Matrix.of(small.values, small.scale, None)
    for at in range(5):
        assert inference_kernels().dequantize_row(matrix, at).equal(small.rows(torch.tensor(at)))
    for at in (-1, 5):
        with pytest.raises(IndexError):
            inference_kernels().dequantize_row(matrix, at)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_single_row_with_what_is_no_number_gives_none(wrong: float) -> None:
    small, x = QuantizedMatrix(numbers(5, 40)), numbers(40)
    x[7] = wrong
    got = inference_kernels().matvec(Matrix.of(small.values, small.scale, None), x)
    assert not got.isfinite().any()


def test_no_sum_of_8_bits_overflows() -> None:
    weight, x = torch.full((4, 20_000), 127, dtype=torch.int8), torch.ones(20_000)
    scale = torch.ones(4)
    got = inference_kernels().matvec(Matrix.of(weight, scale, None), x)
    torch.testing.assert_close(got, torch.full((4,), 127.0 * 20_000))


@pytest.mark.parametrize("rows", [1, 2, 5, 63, 129])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (3, 5), (130, 37), (7, 20_011)])
def test_sums_of_whole_numbers_are_exact(rows: int, outputs: int, inputs: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight = (
        torch.randint(-127, 128, (n, inputs), generator=generator, dtype=torch.int8)
        for n in (rows, outputs)
    )
    weight[0], x[0] = 127, -127  # as far from 0 as a sum can be
    assert inference_kernels().gemm_int8(x, weight).equal((x.double() @ weight.double().T).int())


def test_threads_make_no_difference() -> None:
    before, weight, x = torch.get_num_threads(), numbers(3001, 37), numbers(37)
    q, k = numbers(5, H, 2, E), numbers(5, K, S, E, seed=2)
    matrix, found = Matrix.of(weight, None, None), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            whole, step = inference_kernels().quantize_rows(weight)
            product, seen = (
                inference_kernels().matvec(matrix, x),
                inference_kernels().attention_decode(q, k, k, None, 1.0),
            )
            likeliest = torch.tensor(inference_kernels().argmax(matrix, x, 3001))
            found.append((whole, step, product, seen, likeliest))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(a.equal(b) for a, b in zip(found[0], other, strict=True))


def test_other_numbers_than_float32_are_refused() -> None:
    with pytest.raises(TypeError, match="float32"):
        inference_kernels().quantize_rows(numbers(2, 3).double())
    with pytest.raises(TypeError, match="float32"):
        Matrix.of(numbers(2, 3).bfloat16(), None, None)


def panels(weight: Tensor, bias: Tensor | None) -> tuple[PackedMatrix, Tensor]:
    """With what must be held on to."""
    packed = inference_kernels().pack(weight)
    return PackedMatrix.of(packed, bias, len(weight)), packed


@pytest.mark.parametrize("rows", [2, 6, 7, 53, 97, 331])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (63, 5), (64, 16), (130, 37), (7, 2003)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_products_of_several_rows_are_those_of_torch(
    rows: int, outputs: int, inputs: int, with_bias: bool
) -> None:
    weight, x = numbers(outputs, inputs) / inputs**0.5, numbers(rows, inputs, seed=2)
    bias = numbers(outputs, seed=3) if with_bias else None
    matrix, _packed = panels(weight, bias)
    torch.testing.assert_close(
        inference_kernels().linear(matrix, x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("rows", [2, 11, 700])
def test_two_products_with_an_activation_between(name: str, rows: int) -> None:
    up, down, x = numbers(1031, 19) / 4, numbers(23, 1031) / 30, numbers(rows, 19, seed=2)
    bias, last = numbers(1031, seed=3), numbers(23, seed=4)
    wide, _up = panels(up, bias)
    narrow, _down = panels(down, last)
    want = F.linear(TORCH_ACTIVATIONS[name](F.linear(x, up, bias)), down, last)
    got = inference_kernels().feed_forward(wide, narrow, x, ACTIVATIONS[name])
    torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(
        inference_kernels().linear(wide, x, ACTIVATIONS[name]),
        TORCH_ACTIVATIONS[name](F.linear(x, up, bias)), rtol=1e-5, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [5, 400])
def test_a_row_of_a_product_does_not_depend_on_the_others(rows: int) -> None:
    weight, x = numbers(130, 700), numbers(rows, 700, seed=2)
    matrix, _packed = panels(weight, None)
    alone = torch.cat([inference_kernels().linear(matrix, two) for two in x.split(2)])
    assert torch.equal(inference_kernels().linear(matrix, x), alone)


@pytest.mark.parametrize("name", [None, *ACTIVATIONS])
def test_what_is_no_number_stays_none_in_a_product(name: str | None) -> None:
    matrix, _packed = panels(numbers(70, 9), None)
    x = numbers(8, 9, seed=2)
    x[3, 4] = torch.nan
    got = inference_kernels().linear(matrix, x, -1 if name is None else ACTIVATIONS[name])
    assert got[3].isnan().all()
    assert got[[0, 1, 2, 4, 5, 6, 7]].isfinite().all()


@pytest.mark.parametrize("seen", [None, torch.ones(S, dtype=torch.bool)])
def test_no_queries_see_nothing(seen: Tensor | None) -> None:
    found = inference_kernels().attention_decode(
        numbers(B, H, 0, E), numbers(B, K, S, E), numbers(B, K, S, E), seen, 1.0
    )
    assert found.shape == (B, H, 0, E)


def test_a_matrix_is_packed_for_many_rows_or_for_a_few_that_come_again() -> None:
    product = KernelLinear(LinearWeights(numbers(7, 5), None))
    with torch.inference_mode():
        for times in (1, 2):
            product(numbers(3, 5))
            assert not product.is_packed, times
        product(numbers(3, 5))
        assert product.is_packed
        many = KernelLinear(LinearWeights(numbers(7, 5), None))
        many(numbers(300, 5))
        assert many.is_packed
