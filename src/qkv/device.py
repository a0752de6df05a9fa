"""Where tensors live: `auto` takes CUDA, then Apple's MPS, then the CPU."""

import torch

from qkv.errors import UsageError


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name, checked to exist on this machine."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if _mps() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f'unknown device "{name}"; use auto, cpu, cuda or mps') from None
    there = {"cuda": torch.cuda.is_available(), "mps": _mps()}
    if not there.get(device.type, True):
        raise UsageError(f'this torch sees no device "{device}"; use auto or cpu')
    return device


def _mps() -> bool:
    return torch.backends.mps.is_available()
