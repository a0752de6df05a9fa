"""CPUs without registers of 512 bits get tiles of another shape: the products are the same."""

import platform
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from native import needs_compiler
from qkv.machine.compiler import find_compiler
from qkv.native import ACTIVATIONS, Panels
from qkv.native.build import library
from qkv.native.learning import NEVER
from qkv.native.learning.passes import SOURCES, Passes
from qkv.native.loops import Loops

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "AMD64"), reason="only x86 has the flag"
    ),
]


@pytest.fixture(autouse=True)
def _narrow_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setenv("CXX", " ".join([*(find_compiler() or []), "-mno-avx512f"]))


def test_the_loops_products_with_narrow_registers() -> None:
    loops = Loops(library())
    assert loops.panel_width == 16
    for rows, outputs, inputs in ((2, 1, 1), (7, 63, 5), (97, 130, 37), (331, 7, 2003)):
        weight, x = torch.randn(outputs, inputs) / inputs**0.5, torch.randn(rows, inputs)
        bias = torch.randn(outputs)
        matrix = Panels.of(loops.packed(weight), bias, outputs)
        wanted = F.linear(x, weight, bias)
        torch.testing.assert_close(loops.products(matrix, x), wanted, rtol=1e-5, atol=1e-5)


def test_sums_stay_in_registers_that_are_narrow() -> None:
    """In memory they take twenty times as long as torch's."""
    loops = Loops(library())
    weight, x = torch.randn(384, 384), torch.randn(480, 384)
    matrix = Panels.of(loops.packed(weight), None, 384)
    ours, torchs = (
        min(seconds(product) for _ in range(20))
        for product in (lambda: loops.products(matrix, x), lambda: F.linear(x, weight))
    )
    assert ours < 6 * torchs


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_the_passes_products_with_narrow_registers() -> None:
    passes = Passes(str(library("passes", SOURCES)))
    assert not passes.quick_products
    for M, N, K in ((1, 1, 1), (13, 65, 400), (211, 304, 193)):
        a, b = torch.randn(M, K), torch.randn(K, N)
        for left in (a, a.mT.contiguous().mT):
            for right in (b, b.mT.contiguous().mT):
                ours = passes.multiply(left, right)
                torch.testing.assert_close(ours, a @ b, rtol=1e-5, atol=1e-4)
    x = torch.randn(13, 37)
    bent = passes.bend(x, ACTIVATIONS["relu2"], NEVER)
    torch.testing.assert_close(bent, F.relu(x).square())
