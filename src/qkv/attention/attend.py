"""Scaled dot-product attention by the fastest kernel that can express the mask.

`attend` chooses: torch's fused kernel, which never makes the T×S matrix; the same in chunks of
queries, each with the few keys it can reach, where the mask differs from query to query; or, with
a soft cap between scores and softmax, which torch's kernel does not have, the reference formula
in chunks. In training, a chunk's mask is recomputed in the backward pass instead of being saved,
so memory grows with T + S and not with T × S.
"""

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

CHUNK = 256  # queries at a time where each query has a mask row of its own

# With fewer keys than this and no mask, torch's CPU kernel turns a NaN query into zeros.
MIN_KEYS_FOR_NAN = 16


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
        out = _chunk(q, k, v, mask, Tile.full(n["T"], n["S"], q.device), scale)
    else:
        out = in_chunks(partial(_chunk, scale=scale), q, k, v, mask, n["T"], n["S"])
    return out[..., :width]


def _text_by_text(
    q: Tensor, k: Tensor, v: Tensor, packed: Packed, mask: Mask, scale: float | None
) -> Tensor:
    """Packed texts of equal length, next to each other, as one batch without padding or mask.

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


def in_chunks(
    compute: Callable[[Tensor, Tensor, Tensor, Mask, Tile], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    T: int,
    S: int,
) -> Tensor:
    """`compute` on a chunk of queries at a time, recomputed in the backward pass."""
    if T <= CHUNK:
        return compute(q, k, v, mask, Tile.full(T, S, q.device))
    parts = []
    for start in range(0, T, CHUNK):
        tile = Tile(range(start, min(start + CHUNK, T)), range(S), S - T, q.device)
        rows = q[:, :, tile.queries.start : tile.queries.stop]
        parts.append(
            checkpoint(
                compute, rows, k, v, mask, tile, use_reentrant=False, preserve_rng_state=False
            )
        )
    return torch.cat(parts, dim=2)


def _chunk(q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float) -> Tensor:
    k, v, tile = within_reach(k, v, mask, tile)
    return _sdpa(q, k, v, _added(q, mask, tile), scale)


def within_reach(k: Tensor, v: Tensor, mask: Mask, tile: Tile) -> tuple[Tensor, Tensor, Tile]:
    """Only the keys and values that some query of this tile may attend to."""
    keys = (
        mask.key_range(tile) or tile.keys[:1]
    )  # out of reach of all: one key, which the mask hides
    k, v = (t[:, :, keys.start : keys.stop] for t in (k, v))
    return k, v, Tile(tile.queries, keys, tile.offset, tile.device)


def _added(q: Tensor, mask: Mask, tile: Tile) -> Tensor | None:
    """The mask as torch takes it: None, booleans, or a bias with −∞ for masked keys."""
    allowed = mask.allowed_in(tile)
    bias = mask.bias_in(tile)
    if bias is None:
        return allowed
    if not torch.is_grad_enabled():
        bias = bias.detach()
    return add_mask(bias.to(torch.promote_types(q.dtype, torch.float32)), None, allowed)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, causal: bool = False
) -> Tensor:
    grouped, (T, S) = q.shape[1] != k.shape[1], (q.shape[2], k.shape[2])
    if added is None and S < MIN_KEYS_FOR_NAN and _may_hold_nan(q):
        everything = torch.ones(T, S, dtype=torch.bool, device=q.device)
        added, causal = (everything.tril() if causal else everything), False
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=added, scale=scale, is_causal=causal, enable_gqa=grouped
    )


def _may_hold_nan(q: Tensor) -> bool:
    """Whether a query may hold NaN; True where looking would cost more than it saves."""
    if q.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return True
    return math.isnan(float(q.sum()))


def _one_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros appended until queries, keys and values are equally wide: the kernel's condition.

    A zero adds nothing to a dot product, and the zero columns of the values are dropped again.
    """
    width = max(q.shape[-1], v.shape[-1])
    q, k, v = (t if t.shape[-1] == width else F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))
    return q, k, v


def capped(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None, cap: float) -> Tensor:
    """The output of `reference` with the same cap, (B, H, T, width of v)."""
    n = check_sizes(q, k, v, mask)
    return in_chunks(partial(_capped_chunk, scale=scale, cap=cap), q, k, v, mask, n["T"], n["S"])


def _capped_chunk(
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
    """softmax(Q·Kᵀ·scale + mask)·V: for each query a mean of values, weighted by key match.

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
