"""Device selection: `auto` takes CUDA, then Apple's MPS, then the CPU."""

import torch

from qkv.errors import UsageError


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name; raises UsageError if this machine does not have it."""
    if name == "auto":
        return torch.device(_best_device())
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f'unknown device "{name}"; use auto, cpu, cuda or mps') from None
    available = {"cuda": torch.cuda.is_available(), "mps": _has_mps()}
    if not available.get(device.type, True):
        raise UsageError(f'this torch sees no device "{device}"; use auto or cpu')
    return device


def _best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    if _has_mps():
        return "mps"
    return "cpu"


def _has_mps() -> bool:
    return torch.backends.mps.is_available()
