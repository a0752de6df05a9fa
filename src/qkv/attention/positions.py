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
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        if not torch.is_grad_enabled() and not self.interleaved:
            return torch.addcmul(x * cos, x.roll(width // 2, dims=-1), self._signed.to(x.dtype))
        rotated: Tensor = _Rotate.apply(x, cos, sin, self.interleaved)  # type: ignore[no-untyped-call]
        return rotated

    @cached_property
    def _signed(self) -> Tensor:
        """sin, with a minus for the first of each pair: what its partner is multiplied with."""
        half = self.sin.shape[-1] // 2
        return torch.cat((-self.sin[..., :half], self.sin[..., half:]), dim=-1)


class _Rotate(torch.autograd.Function):
    """A rotation saves nothing of x: the gradient is the upstream one, rotated back."""

    @staticmethod
    def forward(context: Any, x: Tensor, cos: Tensor, sin: Tensor, adjacent: bool) -> Tensor:
        context.save_for_backward(cos, sin)
        context.adjacent = adjacent
        return _rotate_pairs(x, cos, sin, adjacent)

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = context.saved_tensors
        return _rotate_pairs(upstream[0], cos, -sin, context.adjacent), None, None, None


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, adjacent: bool) -> Tensor:
    """Each pair (a, b) becomes (a·cos − b·sin, b·cos + a·sin)."""
    half = x.shape[-1] // 2
    first = slice(0, None, 2) if adjacent else slice(0, half)
    second = slice(1, None, 2) if adjacent else slice(half, None)
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
    positions: Tensor, frequencies: Tensor, adjacent: bool = False, factor: float = 1.0
) -> RopeRotation:
    """positions (T,) or (B, T) and frequencies (R/2,) -> the rotation of each position.

    factor: queries and keys also grow by it (YaRN).
    """
    angles = positions.to(frequencies.dtype)[..., None] * frequencies  # (..., T, R/2)
    if positions.dim() == 2:
        angles = angles[:, None]  # (B, 1, T, R/2)
    both = angles.repeat_interleave(2, dim=-1) if adjacent else torch.cat((angles, angles), dim=-1)
    if factor == 1.0:
        return RopeRotation(both.cos(), both.sin(), adjacent)  # (..., T, R)
    return RopeRotation(both.cos() * factor, both.sin() * factor, adjacent)


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
    """Llama 3's rule: slow pairs are slowed by `factor`, fast ones kept, those between blended.

    A pair is slow if it turns fewer than `low` times within the trained length, fast if more
    than `high` times.
    """
    turns = trained_length * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * keep + frequencies / factor * (1.0 - keep)


def scale_yarn(
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


@dataclass(frozen=True, eq=False)
class AlibiMask(MaskPart):
    """Each head loses its own slope for every position of distance (Press et al. 2022)."""

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
    """Each head adds a learned number for the bucket a distance falls in (Raffel et al. 2020)."""

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
        fit_axes("distance buckets, one number a head, have", self.table[0], "H", sizes)


def alibi_slopes(heads: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A geometric series from 2^(−8/n) to 2^−8; between powers of two, every other step of the
    next one fills up, as in the paper's own code. (H,)
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
    `farthest`, and the last one takes everything beyond. With `both_ways` the buckets are shared
    out between keys before and keys after; otherwise keys after the query count as distance 0.
    """
    offset = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        offset = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
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
    steps = max(count - 1, 1) if endpoint else width / 2
    exponents = torch.arange(count, device=positions.device, dtype=dtype) / steps
    angles = positions.to(dtype)[..., None] * base**-exponents  # (..., count)
    waves = (angles.sin(), angles.cos())
    if interleaved:
        return torch.stack(waves, dim=-1).flatten(-2)[..., :width]  # (..., width)
    return torch.cat(waves, dim=-1)[..., :width]  # (..., width)
