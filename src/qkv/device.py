"""Where tensors live: `auto` takes CUDA, then Apple's MPS, then the CPU."""

import torch

from qkv.errors import UsageError


def resolve(name: str = "auto") -> torch.device:
    """The device of that name, checked to exist on this machine."""
    if name == "auto":
        name = "cuda" if _cuda() else "mps" if _mps() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f'unknown device "{name}"; use auto, cpu, cuda or mps') from error
    if device.type == "cuda" and not _cuda():
        raise UsageError("this torch sees no CUDA device; use --device auto or cpu")
    if device.type == "mps" and not _mps():
        raise UsageError("this torch sees no MPS device; use --device auto or cpu")
    return device


def _cuda() -> bool:
    return torch.cuda.is_available()


def _mps() -> bool:
    return torch.backends.mps.is_available()
