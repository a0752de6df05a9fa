"""Positions as rotations of queries and keys (Su et al. 2021, "RoFormer").

Turning q by its position and k by its own makes their dot product depend only on the distance.
Public checkpoints pair the features in two ways: neighbours (0,1), (2,3), … as in the paper, or
the first half with the second half, (0, R/2), (1, R/2+1), ….
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rotation:
    """How far to turn each pair of features at each position; cos and sin (..., T, R).

    Both features of a pair have the same angle, so each angle stands twice.
    """

    cos: Tensor
    sin: Tensor
    adjacent: bool

    def turn(self, x: Tensor) -> Tensor:
        """x (B, H, T, E) with its first R features turned; the rest stays as it is."""
        width = self.cos.shape[-1]
        if width < x.shape[-1]:
            return torch.cat((self.turn(x[..., :width]), x[..., width:]), dim=-1)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        if not torch.is_grad_enabled() and not self.adjacent:
            return torch.addcmul(x * cos, x.roll(width // 2, dims=-1), self._signed.to(x.dtype))
        turned: Tensor = _Turn.apply(x, cos, sin, self.adjacent)  # type: ignore[no-untyped-call]
        return turned

    @cached_property
    def _signed(self) -> Tensor:
        """sin, with a minus for the first of each pair: what its partner is multiplied with."""
        half = self.sin.shape[-1] // 2
        return torch.cat((-self.sin[..., :half], self.sin[..., half:]), dim=-1)


class _Turn(torch.autograd.Function):
    """Turning keeps nothing of x: its gradient is the upstream one, turned back."""

    @staticmethod
    def forward(context: Any, x: Tensor, cos: Tensor, sin: Tensor, adjacent: bool) -> Tensor:
        context.save_for_backward(cos, sin)
        context.adjacent = adjacent
        return _turned(x, cos, sin, adjacent)

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = context.saved_tensors
        return _turned(upstream[0], cos, -sin, context.adjacent), None, None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, adjacent: bool) -> Tensor:
    """Each pair (a, b) becomes (a·cos − b·sin, b·cos + a·sin)."""
    half = x.shape[-1] // 2
    first = slice(0, None, 2) if adjacent else slice(0, half)
    second = slice(1, None, 2) if adjacent else slice(half, None)
    turned = x * cos
    turned[..., first].addcmul_(x[..., second], sin[..., first], value=-1.0)
    turned[..., second].addcmul_(x[..., first], sin[..., second])
    return turned


class Unturned:
    """No rotation: what a model without rotary positions passes on."""

    def turn(self, x: Tensor) -> Tensor:
        return x


UNTURNED = Unturned()


def rotation(
    positions: Tensor, frequencies: Tensor, adjacent: bool = False, factor: float = 1.0
) -> Rotation:
    """positions (T,) or (B, T) and frequencies (R/2,) -> the rotation of each position.

    What is turned also becomes `factor` times as long.
    """
    angles = positions.to(frequencies.dtype)[..., None] * frequencies  # (..., T, R/2)
    if positions.dim() == 2:
        angles = angles[:, None]  # (B, 1, T, R/2)
    both = angles.repeat_interleave(2, dim=-1) if adjacent else torch.cat((angles, angles), dim=-1)
    if factor == 1.0:
        return Rotation(both.cos(), both.sin(), adjacent)  # (..., T, R)
    return Rotation(both.cos() * factor, both.sin() * factor, adjacent)


def frequencies(
    width: int,
    base: float = 10_000.0,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Radians per position of each of the width/2 pairs: 1, …, towards 1/base."""
    exponents = torch.arange(0, width, 2, device=device, dtype=dtype) / width
    return base**-exponents  # (width/2,)


def stretch_linear(frequencies: Tensor, factor: float) -> Tensor:
    """Positions squeezed into the trained range (Chen et al. 2023, position interpolation)."""
    return frequencies / factor


def stretch_base(base: float, factor: float, width: int) -> float:
    """The base that slows the slowest pair by `factor` and leaves the fastest alone (NTK-aware)."""
    return float(base * factor ** (width / (width - 2)))


def stretch_by_wavelength(
    frequencies: Tensor, factor: float, low: float, high: float, trained_length: int
) -> Tensor:
    """Llama 3's rule: slow pairs are slowed by `factor`, fast ones kept, those between blended.

    A pair is slow if it turns fewer than `low` times within the trained length, fast if more
    than `high` times.
    """
    turns = trained_length * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * keep + frequencies / factor * (1.0 - keep)


def stretch_by_turns(
    frequencies: Tensor, base: float, factor: float, fast: float, slow: float, trained_length: int
) -> Tensor:
    """YaRN (Peng et al. 2023): pairs that turn more than `fast` times within the trained length
    stay, those that turn fewer than `slow` times are slowed by `factor`, and between them the
    share grows evenly from pair to pair.
    """
    pairs = len(frequencies)

    def pair_that_turns(times: float) -> float:
        return pairs * math.log(trained_length / (times * 2 * math.pi)) / math.log(base)

    first = max(math.floor(pair_that_turns(fast)), 0)
    last = min(math.ceil(pair_that_turns(slow)), 2 * pairs - 1)
    places = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device)
    slowed = ((places - first) / max(last - first, 0.001)).clamp(0.0, 1.0)
    return frequencies / factor * slowed + frequencies * (1.0 - slowed)
