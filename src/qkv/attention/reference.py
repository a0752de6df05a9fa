"""Scaled dot-product attention, written to be read: softmax(Q·Kᵀ/√d_k)·V, step by step.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1. This kernel is the definition
that `fused` is tested against. It keeps every intermediate result, so it needs memory for the T×S
matrix.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.attention.mask import FULL_MASK, Mask, Tile
from qkv.errors import ShapeError
from qkv.shapes import expect


@dataclass(frozen=True)
class AttentionSteps:
    """Every intermediate of one attention, in the order it is computed."""

    scores: Tensor  # Q·Kᵀ                                  (B, H, T, S)
    scaled: Tensor  # scores × scale                        (B, H, T, S)
    capped: Tensor  # cap·tanh(scaled ÷ cap), or scaled     (B, H, T, S)
    masked: Tensor  # capped + bias, −∞ where masked        (B, H, T, S)
    weights: Tensor  # softmax of each row                  (B, H, T, S)
    output: Tensor  # weights · V                           (B, H, T, width of v)


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = FULL_MASK,
    scale: float | None = None,
    cap: float | None = None,
) -> AttentionSteps:
    """Every step from the queries to their weighted means of the values.

    q (B, H, T, E), k (B, K, S, E), v (B, K, S, any width), H a multiple of K
    -> weights whose rows sum to 1, or to 0 for a query that may attend to no key.

    scale: None for 1/√E, 1.0 for no scaling, or any factor.
    cap: limits scaled scores smoothly to ±cap (soft-capping, Gemma Team 2024); None for no limit.
    """
    n = check_sizes(q, k, v, mask)
    return tile_steps(q, k, v, mask, Tile.full(n["T"], n["S"], q.device), scale, cap)


def tile_steps(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float | None, cap: float | None
) -> AttentionSteps:
    """The steps of one tile; q holds the queries of the tile only, k and v its keys."""
    dtype = v.dtype
    # Half precision has too few bits for sums over S keys and for softmax.
    q = at_least_float32(q)
    k = at_least_float32(k)
    v = at_least_float32(v)
    group = q.shape[1] // k.shape[1]
    if group > 1:  # grouped-query attention: consecutive query heads share a key head
        k = k.repeat_interleave(group, dim=1)  # (B, H, S, E)
        v = v.repeat_interleave(group, dim=1)

    scores = q @ k.transpose(-2, -1)  # (B, H, T, S)
    scaled = scores * scale_factor(q.shape[-1], scale)
    capped = scaled
    if cap is not None:
        capped = soft_cap(scaled, cap)
    masked = add_mask(capped, mask.bias_in(tile), mask.allowed_in(tile))
    weights = softmax(masked)
    output = weights @ v  # (B, H, T, E)
    return AttentionSteps(scores, scaled, capped, masked, weights.to(dtype), output.to(dtype))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap·tanh(x ÷ cap): between −cap and cap, and close to x where x is small."""
    return (x / cap).tanh() * cap


def softmax(scores: Tensor) -> Tensor:
    """Probabilities that sum to 1 along the last axis; a row that is all −∞ becomes zeros."""
    # softmax of an all-masked row is 0/0. Its scores are replaced first, not only its result, so
    # that the gradient is finite as well. A NaN in any other row still shows.
    all_masked = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(all_masked, 0.0).softmax(dim=-1).masked_fill(all_masked, 0.0)


def add_mask(scores: Tensor, bias: Tensor | None, allowed: Tensor | None) -> Tensor:
    """Scores plus the bias, and −∞ where a query may not attend."""
    if bias is not None:
        scores = scores + bias.to(scores.dtype)
    if allowed is None:
        return scores
    return scores.masked_fill(~allowed, -torch.inf)


def scale_factor(E: int, scale: float | None) -> float:
    """The factor of the scores: 1/√E by default, which keeps their variance near 1."""
    factor: float = E**-0.5
    if scale is not None:
        factor = scale
    return factor


def at_least_float32(t: Tensor) -> Tensor:
    """The tensor in float32, or in its own dtype where that is wider."""
    return t.to(torch.promote_types(t.dtype, torch.float32))


def check_sizes(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> dict[str, int]:
    """The size of each axis; raises a ShapeError or MaskError that names what does not fit."""
    n = _matching_sizes(q, k, v)
    if n is None:
        n = expect(q=(q, "B H T E"), k=(k, "B K S E"), v=(v, "B K S value"))
    if n["K"] == 0 or n["H"] % n["K"]:
        raise ShapeError(f"K={n['K']} key/value heads must divide H={n['H']} query heads")
    if not q.is_floating_point():
        raise ShapeError(f"q holds {q.dtype}, but attention needs floating-point numbers")
    if not q.dtype == k.dtype == v.dtype:
        raise ShapeError(f"q, k and v hold {q.dtype}, {k.dtype} and {v.dtype}; they must be equal")
    mask.check(n)
    return n


def _matching_sizes(q: Tensor, k: Tensor, v: Tensor) -> dict[str, int] | None:
    """The result of `expect` if all shapes match, else None.

    It runs in every layer for every generated token, so it avoids the work of `expect`.
    """
    if not all(isinstance(t, Tensor) and t.dim() == 4 for t in (q, k, v)):
        return None
    B, H, T, E = q.shape
    _, K, S, _ = k.shape
    if k.shape != (B, K, S, E) or v.shape[:3] != (B, K, S):
        return None
    return {"B": B, "H": H, "T": T, "E": E, "K": K, "S": S, "value": v.shape[3]}
