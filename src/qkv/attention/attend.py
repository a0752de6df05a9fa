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

    The exception is a bias that needs a gradient: for that torch falls back to an unfused kernel.
    """
    n = check_sizes(q, k, v, mask)
    packing = mask.packing()
    if packing is not None:
        return _attend_text_by_text(q, k, v, *packing, scale)
    scale = scale_factor(n["E"], scale)
    q, k, v = _pad_to_equal_width(q, k, v)
    # torch aligns a causal mask with the first key, qkv with the last one. The two agree if T = S;
    # and a single query is the last one, which attends to all keys.
    if mask.only_causal() and n["T"] in (n["S"], 1):
        out = _sdpa(q, k, v, None, scale, causal=n["T"] > 1)
    elif not mask.per_query():
        out = _chunk(q, k, v, mask, Tile.full(n["T"], n["S"], q.device), scale)
    else:
        out = in_chunks(partial(_chunk, scale=scale), q, k, v, mask, n["T"], n["S"])
    return out[..., : n["value"]]


def _attend_text_by_text(
    q: Tensor, k: Tensor, v: Tensor, packed: Packed, mask: Mask, scale: float | None
) -> Tensor:
    """Attention within each packed text; a run of equal lengths is one batch without padding.

    q, k, v (1, H, T, E) -> (1, H, T, width of v)
    """
    outputs = [v.new_empty(0, q.shape[1], v.shape[-1])]  # so that no text at all works as well
    start = 0
    for count, length in packed.runs():
        stop = start + count * length

        def as_batch(t: Tensor, run: slice = slice(start, stop), count: int = count) -> Tensor:
            return t[0, :, run].view(t.shape[1], count, -1, t.shape[-1]).transpose(0, 1)

        output = fused(as_batch(q), as_batch(k), as_batch(v), mask, scale)  # (count, H, length, E)
        outputs.append(output.transpose(1, 2).flatten(0, 1))  # (count·length, H, E)
        start = stop
    return torch.cat(outputs).transpose(0, 1)[None]


def in_chunks(
    compute: Callable[[Tensor, Tensor, Tensor, Mask, Tile], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    T: int,
    S: int,
) -> Tensor:
    """The outputs of `compute` for one chunk of queries at a time, concatenated.

    Each chunk is recomputed in the backward pass, so that its mask does not have to be saved
    (activation checkpointing, Chen et al. 2016).
    """
    if T <= CHUNK:
        return compute(q, k, v, mask, Tile.full(T, S, q.device))
    outputs = []
    for start in range(0, T, CHUNK):
        tile = Tile(range(start, min(start + CHUNK, T)), range(S), S - T, q.device)
        rows = q[:, :, tile.queries.start : tile.queries.stop]
        # Attention draws no random numbers, so their state need not be saved for the recomputation.
        output = checkpoint(
            compute, rows, k, v, mask, tile, use_reentrant=False, preserve_rng_state=False
        )
        outputs.append(output)
    return torch.cat(outputs, dim=2)


def _chunk(q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float) -> Tensor:
    """The output of one tile of queries, by torch's kernel."""
    k, v, tile = drop_unreachable_keys(k, v, mask, tile)
    return _sdpa(q, k, v, _attn_mask(q, mask, tile), scale)


def drop_unreachable_keys(
    k: Tensor, v: Tensor, mask: Mask, tile: Tile
) -> tuple[Tensor, Tensor, Tile]:
    """The keys and values that some query of the tile may attend to, and the tile of these."""
    # Kernels need at least one key. Where none is reachable it is one that the mask hides.
    keys = mask.key_range(tile) or tile.keys[:1]
    k = k[:, :, keys.start : keys.stop]
    v = v[:, :, keys.start : keys.stop]
    return k, v, Tile(tile.queries, keys, tile.offset, tile.device)


def _attn_mask(q: Tensor, mask: Mask, tile: Tile) -> Tensor | None:
    """The mask in torch's form: None, booleans, or a bias with −∞ for masked keys."""
    allowed = mask.allowed_in(tile)
    bias = mask.bias_in(tile)
    if bias is None:
        return allowed
    if not torch.is_grad_enabled():
        bias = bias.detach()  # even in no_grad mode torch would leave its fused kernel
    return add_mask(bias.to(torch.promote_types(q.dtype, torch.float32)), None, allowed)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, scale: float, causal: bool = False
) -> Tensor:
    """torch's scaled_dot_product_attention, in which a NaN query always gives NaN."""
    T = q.shape[2]
    S = k.shape[2]
    if attn_mask is None and S < MIN_KEYS_FOR_NAN and _may_contain_nan(q):
        # The kernel's path with an explicit mask does propagate NaN.
        attn_mask = torch.ones(T, S, dtype=torch.bool, device=q.device)
        if causal:
            attn_mask = attn_mask.tril()
            causal = False
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=attn_mask, scale=scale, is_causal=causal, enable_gqa=grouped
    )


def _may_contain_nan(q: Tensor) -> bool:
    """Whether a query may contain NaN; True where a test would cost more than it saves."""
    if q.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return True
    return math.isnan(float(q.sum()))  # one NaN makes the sum NaN


def _pad_to_equal_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, zero-padded to the same width, which torch's fused kernel requires.

    A zero adds nothing to a dot product, and `fused` drops the zero columns of the output.
    """
    missing = v.shape[-1] - q.shape[-1]
    if missing > 0:
        q = F.pad(q, (0, missing))
        k = F.pad(k, (0, missing))
    elif missing < 0:
        v = F.pad(v, (0, -missing))
    return q, k, v


def capped(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float | None, cap: float) -> Tensor:
    """The output of `reference` with the same cap, (B, H, T, width of v)."""
    n = check_sizes(q, k, v, mask)
    return in_chunks(partial(_capped_chunk, scale=scale, cap=cap), q, k, v, mask, n["T"], n["S"])


def _capped_chunk(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float | None, cap: float
) -> Tensor:
    k, v, tile = drop_unreachable_keys(k, v, mask, tile)
    return tile_steps(q, k, v, mask, tile, scale, cap).output


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = FULL_MASK,
    scale: float | None = None,
    cap: float | None = None,
) -> Tensor:
    """softmax(Q·Kᵀ·scale + mask)·V: for each query, a weighted mean of the values.

    q (B, H, T, E), k (B, K, S, E), v (B, K, S, any width), H a multiple of K; Q, K and V may come
    from one sequence (self-attention) or from two (cross attention, T ≠ S).
    -> (B, H, T, width of v); zeros for a query that may attend to no key.

    scale: None for 1/√E, 1.0 for no scaling, or any factor.
    cap: limits scaled scores smoothly to ±cap; None for no limit.
    """
    if not isinstance(mask, Mask):
        raise MaskError(
            f"mask is a {type(mask).__name__}, but a Mask is needed: Mask.causal(), or "
            f"Mask.explicit(grid) for a grid of booleans, True = may attend"
        )
    if cap is not None:
        if not cap > 0:
            raise ShapeError(f"cap={cap} must be above 0, or None for uncapped scores")
        return capped(q, k, v, mask, scale, cap)
    if mask.needs_grad():  # torch's fused kernel has no gradient for a bias (T5 in training)
        return reference(q, k, v, mask, scale).output
    return fused(q, k, v, mask, scale)
