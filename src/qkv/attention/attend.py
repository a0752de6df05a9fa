"""The one place that chooses a kernel."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from qkv.attention.mask import FULL_MASK, Mask, Packed, Tile
from qkv.attention.reference import add_mask, check_sizes, reference, scale_factor, tile_steps
from qkv.errors import MaskError, ShapeError

# FOLDED attention/fused: The same attention through torch's fused kernel, without ever making
#   the T×S matrix.
#
#   What the kernel cannot express is given to it in strips of queries, each with the few keys
#   it can
#   reach. While training, a strip's mask is made again in the backward pass instead of being
#   kept.
# FOLDED attention/capped: Attention whose scores are capped, a strip of queries at a time.
#
#   torch's fused kernel has no place for a cap between the scores and their softmax. So each
#   strip is
#   computed as in `reference` and only its result is kept: memory grows with T + S, not with
#   T × S.

STRIP = 256  # queries at a time where each query has a mask row of its own

SHORT = 16  # fewer keys than this, unmasked, and torch's CPU kernel turns a NaN query into zeros


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = FULL_MASK, scale: float | None = None
) -> Tensor:
    """The output of `reference`, (B, H, T, width of v), in memory that grows with T + S.

    A bias that takes a gradient is the exception: torch then leaves its fused kernel.
    """
    n = check_sizes(q, k, v, mask)
    packing = mask.packing()
    if packing is not None:
        return _text_by_text(q, k, v, *packing, scale)
    scale = scale_factor(n["E"], scale)
    q, k, v, width = *_one_width(q, k, v), n["value"]
    if mask.only_causal() and n["T"] in (n["S"], 1):  # a single query is the last: it sees all
        out = _sdpa(q, k, v, None, scale, causal=n["T"] > 1)
    elif not mask.per_query():
        out = _strip(q, k, v, mask, Tile.full(n["T"], n["S"], q.device), scale)
    else:
        out = in_strips(partial(_strip, scale=scale), q, k, v, mask, n["T"], n["S"])
    return out[..., :width]


def _text_by_text(
    q: Tensor, k: Tensor, v: Tensor, packed: Packed, mask: Mask, scale: float | None
) -> Tensor:
    """Neighbours of equal length as one batch, so that nothing is padded and nothing is hidden.

    q, k, v (1, H, T, E) -> (1, H, T, width of v)
    """
    parts, start = [v.new_empty(0, q.shape[1], v.shape[-1])], 0
    for count, length in packed.runs():
        stop = start + count * length

        def texts(t: Tensor, run: slice = slice(start, stop), count: int = count) -> Tensor:
            return t[0, :, run].view(t.shape[1], count, -1, t.shape[-1]).transpose(0, 1)

        mixed = fused(texts(q), texts(k), texts(v), mask, scale)  # (count, H, length, width)
        parts.append(mixed.transpose(1, 2).flatten(0, 1))  # (count·length, H, width)
        start = stop
    return torch.cat(parts).transpose(0, 1)[None]


def in_strips(
    compute: Callable[[Tensor, Tensor, Tensor, Mask, Tile], Tensor],
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, T: int, S: int,
) -> Tensor:  # fmt: skip
    """What `compute` makes of a strip of queries at a time, made again in the backward pass."""
    if T <= STRIP:
        return compute(q, k, v, mask, Tile.full(T, S, q.device))
    parts = []
    for start in range(0, T, STRIP):
        tile = Tile(range(start, min(start + STRIP, T)), range(S), S - T, q.device)
        rows = q[:, :, tile.queries.start : tile.queries.stop]
        parts.append(
            checkpoint(
                compute, rows, k, v, mask, tile, use_reentrant=False, preserve_rng_state=False
            )
        )
    return torch.cat(parts, dim=2)


def _strip(q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float) -> Tensor:
    k, v, tile = within_reach(k, v, mask, tile)
    return _sdpa(q, k, v, _added(q, mask, tile), scale)


def within_reach(k: Tensor, v: Tensor, mask: Mask, tile: Tile) -> tuple[Tensor, Tensor, Tile]:
    """Only the keys and values that the queries of this tile can see at all."""
    keys = (
        mask.key_range(tile) or tile.keys[:1]
    )  # out of reach of all: one key, which the mask hides
    k, v = (t[:, :, keys.start : keys.stop] for t in (k, v))
    return k, v, Tile(tile.queries, keys, tile.offset, tile.device)


def _added(q: Tensor, mask: Mask, tile: Tile) -> Tensor | None:
    """What the kernel takes as its mask: nothing, booleans, or numbers with −∞ for hidden keys."""
    seen, bias = mask.allowed_in(tile), mask.bias_in(tile)
    if bias is None:
        return seen
    bias = bias if torch.is_grad_enabled() else bias.detach()
    return add_mask(bias.to(torch.promote_types(q.dtype, torch.float32)), None, seen)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, causal: bool = False
) -> Tensor:
    grouped, (T, S) = q.shape[1] != k.shape[1], (q.shape[2], k.shape[2])
    if added is None and S < SHORT and _may_hold_nan(q):
        everything = torch.ones(T, S, dtype=torch.bool, device=q.device)
        added, causal = (everything.tril() if causal else everything), False
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=added, scale=scale, is_causal=causal, enable_gqa=grouped
    )


def _may_hold_nan(q: Tensor) -> bool:
    """Whether a query may hold NaN; where a look costs more than it saves, it may."""
    if q.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return True
    return math.isnan(float(q.sum()))


def _one_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros appended until queries, keys and values are equally wide: the kernel's condition.

    A zero adds nothing to a dot product, and a zero value column is cut off again.
    """
    width = max(q.shape[-1], v.shape[-1])
    q, k, v = (t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
    return q, k, v


def capped(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None, cap: float) -> Tensor:
    """The output of `reference` with the same cap, (B, H, T, width of v)."""
    n = check_sizes(q, k, v, mask)
    return in_strips(partial(_capped_strip, scale=scale, cap=cap), q, k, v, mask, n["T"], n["S"])


def _capped_strip(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float | None, cap: float
) -> Tensor:
    k, v, tile = within_reach(k, v, mask, tile)
    return tile_steps(q, k, v, mask, tile, scale, cap).output


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = FULL_MASK,
    scale: float | None = None,
    cap: float | None = None,
) -> Tensor:
    """The mean of the values each query may see, weighted by how well their keys match it.

    q (B, H, T, E), k (B, K, S, E), v (B, K, S, any width), H a multiple of K; Q, K and V may come
    from one sequence (self-attention) or from two (cross attention, T ≠ S).
    -> (B, H, T, width of v); zeros for a query that may see nothing.

    scale: None for 1/√E, 1.0 to leave the scaling out, or any factor.
    cap: no scaled score is larger than this; None leaves them as they are.
    """
    if not isinstance(mask, Mask):
        raise MaskError(
            f"mask is a {type(mask).__name__}, but a Mask is needed: Mask.causal(), or "
            f"Mask.explicit(grid) for a grid of booleans, True = may attend"
        )
    if cap is not None:
        if not cap > 0:
            raise ShapeError(f"cap={cap} must be above 0: no score could be larger than it")
        return capped(q, k, v, mask, scale, cap)
    if mask.needs_grad():  # torch's fused kernel takes no bias that needs a gradient
        return reference(q, k, v, mask, scale).output
    return fused(q, k, v, mask, scale)
