"""The fused path never makes a T×S matrix, forward or backward, and really is the fused kernel."""

import importlib
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from qkv.attention import AlibiMask, BucketMask, Mask, attend, fused, reference

CHUNK = importlib.import_module("qkv.attention.attend").CHUNK
B = 1
H = 2
LENGTH = 2048
E = 8
LIMIT = LENGTH * LENGTH // 2

FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
FLASH_BACKWARD = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
BY_HAND = {"aten::_softmax", "aten::_safe_softmax", "aten::bmm", "aten::baddbmm"}

MASKS = {
    "full": Mask.full(),
    "causal": Mask.causal(),
    "padding": Mask.padding(torch.tensor([1531])),
    "causal & padding": Mask.causal() & Mask.padding(torch.tensor([1531])),
    "window": Mask.window(100, 50),
    "documents & causal": Mask.documents(torch.arange(LENGTH)[None] // 379) & Mask.causal(),
    "causal & alibi": Mask.causal() & Mask((AlibiMask(torch.tensor([0.5, 0.25])),)),
    "causal & buckets": Mask.causal() & Mask((BucketMask(torch.zeros(32, H), 128, False),)),
}


class Watch(TorchDispatchMode):
    """Counts every operation that runs, and remembers the largest tensor that comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.largest = 0
        self.made_by = ""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        name = operation._schema.name
        self.calls[name] += 1
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t.untyped_storage().nbytes() > 0:
                size = min(t.numel(), t.untyped_storage().nbytes() // t.element_size())
                if size > self.largest:
                    self.largest = size
                    self.made_by = name
        return out


def watched(kernel: Any, mask: Mask, T: int = LENGTH, S: int = LENGTH, value: int = E) -> Watch:
    """Everything that happens in one forward and one backward pass."""
    q = torch.randn(B, H, T, E, requires_grad=True)
    k = torch.randn(B, 1, S, E, requires_grad=True)
    v = torch.randn(B, 1, S, value, requires_grad=True)
    with Watch() as watch:
        out = kernel(q, k, v, mask)
        out.sum().backward()
    assert q.grad is not None
    assert k.grad is not None
    assert v.grad is not None
    return watch


@pytest.mark.parametrize("name", MASKS)
def test_no_matrix_of_queries_times_keys_ever_exists(name: str) -> None:
    watch = watched(fused, MASKS[name])
    assert watch.largest < LIMIT, f"{watch.made_by} made {watch.largest} numbers"


@pytest.mark.parametrize("name", ["causal", "causal & padding", "documents & causal"])
def test_no_tensor_is_larger_than_one_strip_of_one_mask(name: str) -> None:
    assert watched(fused, MASKS[name]).largest <= CHUNK * LENGTH


def test_a_window_is_as_small_as_its_reach() -> None:
    around = CHUNK + 100 + 50
    assert watched(fused, MASKS["window"]).largest <= max(CHUNK * around, H * LENGTH * E)


@pytest.mark.parametrize(("T", "S"), [(2048, 1021), (1021, 2048)])
def test_no_matrix_exists_where_queries_and_keys_differ_in_number(T: int, S: int) -> None:
    assert watched(fused, Mask.causal(), T, S).largest < T * S / 2


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("value", [E, 5, 13])
def test_the_fused_kernel_runs_forward_and_backward(name: str, value: int) -> None:
    calls = watched(fused, MASKS[name], value=value).calls
    assert calls[FLASH] >= 1
    assert calls[FLASH_BACKWARD] >= 1
    assert not BY_HAND & calls.keys()


def test_plain_causal_attention_is_one_call_of_the_kernel() -> None:
    assert watched(fused, Mask.causal()).calls[FLASH] == 1


def test_a_strip_is_computed_once_more_in_the_backward_pass_and_no_more() -> None:
    strips = LENGTH // CHUNK
    calls = watched(fused, MASKS["causal & padding"]).calls
    assert calls[FLASH] == 2 * strips
    assert calls[FLASH_BACKWARD] == strips


def test_attend_takes_the_fused_kernel() -> None:
    assert watched(attend, MASKS["causal & alibi"]).calls[FLASH] >= 1


def test_attend_takes_the_fused_kernel_for_a_learned_bias_once_nothing_learns() -> None:
    q = torch.randn(B, H, 5, E)
    mask = Mask.bias(torch.zeros(5, 5, requires_grad=True))
    with torch.no_grad(), Watch() as watch:
        attend(q, q, q, mask)
    assert watch.calls[FLASH] == 1


def test_the_watch_would_notice_the_reference() -> None:
    watch = watched(lambda *args: reference(*args).output, Mask.causal())
    assert watch.largest >= LENGTH * LENGTH
    assert FLASH not in watch.calls
    assert BY_HAND & watch.calls.keys()
