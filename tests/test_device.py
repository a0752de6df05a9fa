"""`auto` finds what the machine has; what it has not is one clear line."""

import pytest
import torch

from qkv.device import resolve_device
from qkv.errors import UsageError


def test_auto_is_the_best_device_there_is() -> None:
    best = "cuda" if torch.cuda.is_available() else None
    best = best or ("mps" if torch.backends.mps.is_available() else "cpu")
    assert resolve_device("auto").type == best


def test_the_cpu_is_always_there() -> None:
    assert resolve_device("cpu") == torch.device("cpu")


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match='unknown device "gpu"'):
        resolve_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match='sees no device "cuda"'):
        resolve_device("cuda")
