"""Positions as numbers added to the scores: ALiBi's slopes and T5's learned distance buckets."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from qkv.attention.mask import Part, Tile, fit_axes


@dataclass(frozen=True, eq=False)
class Alibi(Part):
    """Each head loses its own slope for every position of distance (Press et al. 2022)."""

    relative: ClassVar[bool] = True

    slopes: Tensor  # (H,)

    def bias(self, tile: Tile) -> Tensor:
        distance = (tile.columns() - tile.rows()).abs()
        return -self.slopes.to(tile.device)[None, :, None, None] * distance  # (1, H, t, s)

    def learns(self) -> bool:
        return self.slopes.requires_grad

    def fit(self, sizes: dict[str, int]) -> None:
        fit_axes("ALiBi slopes have", self.slopes, "H", sizes)


@dataclass(frozen=True, eq=False)
class Buckets(Part):
    """Each head adds a learned number for the bucket a distance falls in (Raffel et al. 2020)."""

    relative: ClassVar[bool] = True

    table: Tensor  # (buckets, H)
    farthest: int
    both_ways: bool

    def bias(self, tile: Tile) -> Tensor:
        distance = tile.columns() - tile.rows()
        bucket = distance_buckets(distance, self.table.shape[0], self.farthest, self.both_ways)
        return self.table[bucket].permute(2, 0, 1)[None]  # (1, H, t, s)

    def learns(self) -> bool:
        return self.table.requires_grad

    def fit(self, sizes: dict[str, int]) -> None:
        fit_axes("distance buckets, one number a head, have", self.table[0], "H", sizes)


def alibi_slopes(heads: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A geometric series from 2^(−8/n) to 2^−8; between powers of two, every other step of the
    next one fills up, as in the paper's own code. (H,)
    """
    n = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / n) for i in range(n)]
    finer = [2 ** (-4 * (i + 1) / n) for i in range(0, 2 * n, 2)]
    return torch.tensor((slopes + finer)[:heads], dtype=dtype)


def distance_buckets(distance: Tensor, buckets: int, farthest: int, both_ways: bool) -> Tensor:
    """The bucket of each signed distance (key − query).

    Half of the buckets hold one distance each; the other half grow logarithmically up to
    `farthest`, and the last one takes everything beyond. With `both_ways` the buckets are shared
    out between keys before and keys after; otherwise keys after the query count as distance 0.
    """
    offset = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        offset = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(farthest / exact)
    far = exact + (ratio * (buckets - exact)).long()
    return offset + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))
