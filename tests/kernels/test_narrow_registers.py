"""CPUs without registers of 512 bits get tiles of another shape: the products are the same."""

import platform
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.native import needs_compiler

from qkv.kernels import ACTIVATIONS, PackedMatrix, inference, training
from qkv.kernels.build import compile_library
from qkv.kernels.inference import InferenceKernels
from qkv.kernels.training import NO_DROPOUT, TrainingKernels
from qkv.machine.resources import find_compiler
from qkv.training.optimizer import QUINTIC, newton_schulz

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "AMD64"), reason="only x86 has the flag"
    ),
]


@pytest.fixture(autouse=True, params=["-mno-avx512f", "-mno-avx"])
def flag(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Registers of 256 and of 128 bits at most."""
    torch.manual_seed(0)
    monkeypatch.setenv("CXX", " ".join([*(find_compiler() or []), request.param]))
    narrow: str = request.param
    return narrow


@pytest.mark.slow
def test_linear_layers_with_narrow_registers() -> None:
    kernels = InferenceKernels(compile_library("inference", inference.SOURCES))
    assert kernels.panel_width == 16
    for rows, outputs, inputs in ((2, 1, 1), (7, 63, 5), (97, 130, 37), (331, 7, 2003)):
        weight, x = torch.randn(outputs, inputs) / inputs**0.5, torch.randn(rows, inputs)
        bias = torch.randn(outputs)
        matrix = PackedMatrix.of(kernels.pack(weight), bias, outputs)
        expected = F.linear(x, weight, bias)
        torch.testing.assert_close(kernels.linear(matrix, x), expected, rtol=1e-5, atol=1e-5)


def test_attention_with_narrow_registers() -> None:
    kernels = InferenceKernels(compile_library("inference", inference.SOURCES))
    for S, E in ((5, 3), (23, 40), (70, 64)):
        q, k, v = torch.randn(1, 6, S, E), torch.randn(1, 2, S, E), torch.randn(1, 2, S, E)
        expected = F.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True)
        for found in (
            kernels.attention_decode(q, k, v, None, 0.3),
            kernels.attention_varlen(q, k, v, [S], 0.3),
        ):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    whole = torch.randint(-127, 128, (9, 37), dtype=torch.int8)
    assert kernels.gemm_int8(whole, whole).equal((whole.double() @ whole.double().T).int())


def test_sums_stay_in_registers_that_are_narrow(flag: str) -> None:
    """In memory they take seven to eleven times as long as torch's."""
    if flag == "-mno-avx":
        pytest.skip("sixteen registers of 128 bits are too few for a tile")
    kernels = InferenceKernels(compile_library("inference", inference.SOURCES))
    weight, x = torch.randn(384, 384), torch.randn(480, 384)
    matrix = PackedMatrix.of(kernels.pack(weight), None, 384)
    both = [
        (seconds(lambda: kernels.linear(matrix, x)), seconds(lambda: F.linear(x, weight)))
        for _ in range(20)
    ]
    ours, torchs = map(min, zip(*both, strict=True))
    assert ours < 6 * torchs


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@pytest.mark.slow
def test_training_kernels_with_narrow_registers() -> None:
    kernels = TrainingKernels(compile_library("training", training.SOURCES))
    assert not kernels.gemm_max_area
    for M, N, K in ((1, 1, 1), (13, 65, 400), (211, 304, 193)):
        a, b = torch.randn(M, K), torch.randn(K, N)
        for left in (a, a.mT.contiguous().mT):
            for right in (b, b.mT.contiguous().mT):
                ours = kernels.gemm(left, right)
                torch.testing.assert_close(ours, a @ b, rtol=1e-5, atol=1e-4)
    matrices = torch.randn(3, 37, 53)
    turned = kernels.newton_schulz(matrices, QUINTIC, 5)
    torch.testing.assert_close(turned, newton_schulz(matrices, 5), rtol=1e-4, atol=1e-5)
    x = torch.randn(13, 37)
    bent = kernels.activation(x, ACTIVATIONS["relu2"], NO_DROPOUT)
    torch.testing.assert_close(bent, F.relu(x).square())
