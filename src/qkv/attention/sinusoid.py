"""Positions as waves of many lengths, added to the embeddings (Vaswani et al. 2017)."""

import torch
from torch import Tensor


def sinusoids(
    positions: Tensor,
    width: int,
    base: float = 10_000.0,
    interleaved: bool = True,
    endpoint: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """A vector for each position: sines and cosines whose wavelengths grow geometrically.

    positions (...) -> (..., width). Interleaved is the paper's sin, cos, sin, cos; otherwise all
    sines come first, then all cosines. The wavelengths run from 2π towards base·2π, and reach it
    exactly with `endpoint`, as some public translation models do.
    """
    count = (width + 1) // 2
    steps = max(count - 1, 1) if endpoint else width / 2
    exponents = torch.arange(count, device=positions.device, dtype=dtype) / steps
    angles = positions.to(dtype)[..., None] * base**-exponents  # (..., count)
    waves = (angles.sin(), angles.cos())
    if interleaved:
        return torch.stack(waves, dim=-1).flatten(-2)[..., :width]  # (..., width)
    return torch.cat(waves, dim=-1)[..., :width]  # (..., width)
