"""Attention whose scores are capped, a strip of queries at a time.

torch's fused kernel has no place for a cap between the scores and their softmax. So each strip is
computed as in `reference` and only its result is kept: memory grows with T + S, not with T × S.
"""

from functools import partial

from torch import Tensor

from qkv.attention.fused import in_strips, within_reach
from qkv.attention.mask import Mask, Tile
from qkv.attention.reference import check_sizes, steps_in


def capped(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None, cap: float) -> Tensor:
    """The output of `reference` with the same cap, (B, H, T, width of v)."""
    n = check_sizes(q, k, v, mask)
    return in_strips(partial(_strip, scale=scale, cap=cap), q, k, v, mask, n["T"], n["S"])


def _strip(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float | None, cap: float
) -> Tensor:
    k, v, tile = within_reach(k, v, mask, tile)
    return steps_in(q, k, v, mask, tile, scale, cap).output
