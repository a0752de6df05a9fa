"""Position encodings as functions: RoPE and its scaling, ALiBi, T5's buckets, sinusoids.

RoPE (Su et al. 2021, "RoFormer") rotates q and k by their positions, which makes their dot product
depend only on the distance. ALiBi and T5 add a bias to the scores; sinusoids are added to the
embeddings (Vaswani et al. 2017).
Public checkpoints pair the features in two ways: neighbours (0,1), (2,3), … as in the paper, or
the first half with the second half, (0, R/2), (1, R/2+1), ….
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.attention.mask import MaskPart, Tile, fit_axes


@dataclass(frozen=True)
class RopeRotation:
    """The angle of each pair of features at each position, as cos and sin (..., T, R).

    Both features of a pair have the same angle, so each angle is repeated.
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool

    def rotate(self, x: Tensor) -> Tensor:
        """x (B, H, T, E) with its first R features rotated; the rest is unchanged."""
        width = self.cos.shape[-1]
        if width < x.shape[-1]:
            return torch.cat((self.rotate(x[..., :width]), x[..., width:]), dim=-1)
        cos = self.cos.to(x.dtype)
        sin = self.sin.to(x.dtype)
        # Without gradients and with halves as pairs, `roll` brings each feature's partner next to
        # it, and the rotation takes two operations; decoding does this for every token.
        if not torch.is_grad_enabled() and not self.interleaved:
            return torch.addcmul(x * cos, x.roll(width // 2, dims=-1), self._signed.to(x.dtype))
        rotated: Tensor = _Rotate.apply(x, cos, sin, self.interleaved)  # type: ignore[no-untyped-call]
        return rotated

    @cached_property
    def _signed(self) -> Tensor:
        """sin, negated for the first feature of each pair: the factor of its partner."""
        half = self.sin.shape[-1] // 2
        return torch.cat((-self.sin[..., :half], self.sin[..., half:]), dim=-1)


class _Rotate(torch.autograd.Function):
    """A rotation saves nothing of x: the gradient is the upstream one, rotated back."""

    @staticmethod
    def forward(context: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        context.save_for_backward(cos, sin)
        context.interleaved = interleaved
        return _rotate_pairs(x, cos, sin, interleaved)

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = context.saved_tensors
        return _rotate_pairs(upstream[0], cos, -sin, context.interleaved), None, None, None


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Each pair (a, b) becomes (a·cos − b·sin, b·cos + a·sin)."""
    half = x.shape[-1] // 2
    if interleaved:
        first = slice(0, None, 2)
        second = slice(1, None, 2)
    else:
        first = slice(0, half)
        second = slice(half, None)
    result = x * cos
    result[..., first].addcmul_(x[..., second], sin[..., first], value=-1.0)
    result[..., second].addcmul_(x[..., first], sin[..., second])
    return result


class NoRope:
    """No rotation, for models without RoPE."""

    def rotate(self, x: Tensor) -> Tensor:
        return x


NO_ROPE = NoRope()


def rope_rotation(
    positions: Tensor, frequencies: Tensor, interleaved: bool = False, factor: float = 1.0
) -> RopeRotation:
    """positions (T,) or (B, T) and frequencies (R/2,) -> the rotation of each position.

    factor: queries and keys are also multiplied by it (the attention factor of YaRN).
    """
    angles = positions.to(frequencies.dtype)[..., None] * frequencies  # (..., T, R/2)
    if positions.dim() == 2:
        angles = angles[:, None]  # (B, 1, T, R/2)
    # Both features of a pair rotate by the same angle.
    if interleaved:
        angles = angles.repeat_interleave(2, dim=-1)  # (..., T, R)
    else:
        angles = torch.cat((angles, angles), dim=-1)  # (..., T, R)
    if factor == 1.0:
        return RopeRotation(angles.cos(), angles.sin(), interleaved)
    return RopeRotation(angles.cos() * factor, angles.sin() * factor, interleaved)


def frequencies(
    width: int,
    base: float = 10_000.0,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Radians per position of each of the width/2 pairs: 1, …, towards 1/base."""
    exponents = torch.arange(0, width, 2, device=device, dtype=dtype) / width
    return base**-exponents  # (width/2,)


def scale_linear(frequencies: Tensor, factor: float) -> Tensor:
    """Positions squeezed into the trained range (Chen et al. 2023, position interpolation)."""
    return frequencies / factor


def ntk_base(base: float, factor: float, width: int) -> float:
    """The base that slows the slowest pair by `factor` and leaves the fastest alone (NTK-aware)."""
    return float(base * factor ** (width / (width - 2)))


def scale_llama3(
    frequencies: Tensor, factor: float, low: float, high: float, trained_length: int
) -> Tensor:
    """Llama 3's rule: low frequencies are divided by `factor`, high ones unchanged, others blended.

    A frequency is low if it makes fewer than `low` rotations within the trained length, and high
    if it makes more than `high`.
    """
    rotations = trained_length * frequencies / (2 * math.pi)
    unscaled = ((rotations - low) / (high - low)).clamp(0.0, 1.0)  # the fraction that is not scaled
    return frequencies * unscaled + frequencies / factor * (1.0 - unscaled)


def scale_yarn(
    frequencies: Tensor, base: float, factor: float, fast: float, slow: float, trained_length: int
) -> Tensor:
    """YaRN (Peng et al. 2023, section 3.2): a linear ramp between high and low frequencies.

    Pairs that make more than `fast` rotations within the trained length are unchanged, those that
    make fewer than `slow` are divided by `factor`; in between the two are blended, pair by pair.
    """
    pairs = len(frequencies)

    def pair_with_rotations(count: float) -> float:
        return pairs * math.log(trained_length / (count * 2 * math.pi)) / math.log(base)

    first = max(math.floor(pair_with_rotations(fast)), 0)
    last = min(math.ceil(pair_with_rotations(slow)), 2 * pairs - 1)
    indices = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device)
    # 0.001 as in the published code: it avoids a division by zero where the ramp is empty.
    ramp = ((indices - first) / max(last - first, 0.001)).clamp(0.0, 1.0)
    return frequencies / factor * ramp + frequencies * (1.0 - ramp)


@dataclass(frozen=True, eq=False)
class AlibiMask(MaskPart):
    """A bias of −slope × distance, with one slope per head (ALiBi, Press et al. 2022)."""

    relative: ClassVar[bool] = True

    slopes: Tensor  # (H,)

    def bias(self, tile: Tile) -> Tensor:
        distance = (tile.columns() - tile.rows()).abs()
        return -self.slopes.to(tile.device)[None, :, None, None] * distance  # (1, H, t, s)

    def needs_grad(self) -> bool:
        return self.slopes.requires_grad

    def check(self, sizes: dict[str, int]) -> None:
        fit_axes("ALiBi slopes have", self.slopes, "H", sizes)


@dataclass(frozen=True, eq=False)
class BucketMask(MaskPart):
    """A learned bias per head and bucket of distances (T5, Raffel et al. 2020)."""

    relative: ClassVar[bool] = True

    table: Tensor  # (buckets, H)
    max_distance: int
    bidirectional: bool

    def bias(self, tile: Tile) -> Tensor:
        distance = tile.columns() - tile.rows()
        bucket = distance_buckets(
            distance, self.table.shape[0], self.max_distance, self.bidirectional
        )
        return self.table[bucket].permute(2, 0, 1)[None]  # (1, H, t, s)

    def needs_grad(self) -> bool:
        return self.table.requires_grad

    def check(self, sizes: dict[str, int]) -> None:
        fit_axes("a bucket of distances, with one bias per head, has", self.table[0], "H", sizes)


def alibi_slopes(heads: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The slope of each head, (H,): a geometric series from 2^(−8/n) to 2^−8.

    Where H is no power of two, every other slope of the next one fills up, as in the paper's code.
    """
    n = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / n) for i in range(n)]
    finer = [2 ** (-4 * (i + 1) / n) for i in range(0, 2 * n, 2)]
    return torch.tensor((slopes + finer)[:heads], dtype=dtype)


def distance_buckets(
    distance: Tensor, buckets: int, max_distance: int, bidirectional: bool
) -> Tensor:
    """The bucket of each signed distance (key − query).

    Half of the buckets hold one distance each; the other half grow logarithmically up to
    `max_distance`, and the last one takes everything beyond. With `bidirectional` one half of the
    buckets is for keys before the query and one for keys after it; otherwise keys after the query
    count as distance 0.
    """
    offset = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    # float32 as in the published code: a wider dtype may move distances at bucket borders.
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)
    far = exact + (ratio * (buckets - exact)).long()
    return offset + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


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
    steps = width / 2
    if endpoint:
        steps = max(count - 1, 1)
    exponents = torch.arange(count, device=positions.device, dtype=dtype) / steps
    angles = positions.to(dtype)[..., None] * base**-exponents  # (..., count)
    waves = (angles.sin(), angles.cos())
    if interleaved:
        return torch.stack(waves, dim=-1).flatten(-2)[..., :width]  # (..., width)
    return torch.cat(waves, dim=-1)[..., :width]  # (..., width)
