"""Scaled dot-product attention, written to be read: softmax(Q·Kᵀ/√d_k)·V, step by step.

Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1. This kernel is the definition;
`fused` must equal it. It keeps every intermediate, so it makes the T×S matrix.
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
    masked: Tensor  # capped + bias, −∞ where not seen      (B, H, T, S)
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
    """All steps from queries to the mean of the values each query may see.

    q (B, H, T, E), k (B, K, S, E), v (B, K, S, any width), H a multiple of K
    -> weights whose rows sum to 1, or to 0 for a query that may see nothing.

    scale: None for 1/√E, 1.0 to leave the scaling out, or any factor.
    cap: no scaled score is larger; they near it along a tanh (Gemma Team 2024).
    """
    n = check_sizes(q, k, v, mask)
    return tile_steps(q, k, v, mask, Tile.full(n["T"], n["S"], q.device), scale, cap)


def tile_steps(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, tile: Tile, scale: float | None, cap: float | None
) -> AttentionSteps:
    """The steps of one tile, whose queries q and keys k, v are given."""
    group = q.shape[1] // k.shape[1]
    q, k, v, narrow = *(at_least_float32(t) for t in (q, k, v)), v.dtype
    if group > 1:
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))  # (B, H, S, E)

    scores = q @ k.transpose(-2, -1)  # (B, H, T, S)
    scaled = scores * scale_factor(q.shape[-1], scale)
    capped = scaled if cap is None else soft_cap(scaled, cap)
    masked = add_mask(capped, mask.bias_in(tile), mask.allowed_in(tile))
    weights = softmax(masked)
    output = weights @ v  # (B, H, T, E)
    return AttentionSteps(scores, scaled, capped, masked, weights.to(narrow), output.to(narrow))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """Numbers kept between −cap and cap: small ones hardly change."""
    return (x / cap).tanh() * cap


def softmax(scores: Tensor) -> Tensor:
    """Each row as shares that sum to 1; a row of nothing but −∞ becomes zeros, not NaN."""
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def add_mask(scaled: Tensor, bias: Tensor | None, seen: Tensor | None) -> Tensor:
    """Scores with the bias added and −∞ wherever the query may not look."""
    if bias is not None:
        scaled = scaled + bias.to(scaled.dtype)
    return scaled if seen is None else scaled.masked_fill(~seen, -torch.inf)


def scale_factor(E: int, scale: float | None) -> float:
    """What the dot products are multiplied by."""
    return E**-0.5 if scale is None else scale


def at_least_float32(t: Tensor) -> Tensor:
    """At least float32: softmax and sums are not done in half precision."""
    return t.to(torch.promote_types(t.dtype, torch.float32))


def check_sizes(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> dict[str, int]:
    """The axis sizes both kernels work with, or an error that names what does not fit."""
    n = _quick_sizes(q, k, v) or expect(q=(q, "B H T E"), k=(k, "B K S E"), v=(v, "B K S value"))
    if n["K"] == 0 or n["H"] % n["K"]:
        raise ShapeError(f"K={n['K']} key/value heads must divide H={n['H']} query heads")
    if not q.is_floating_point():
        raise ShapeError(f"q holds {q.dtype}, but attention needs floating-point numbers")
    if not q.dtype == k.dtype == v.dtype:
        raise ShapeError(f"q, k and v hold {q.dtype}, {k.dtype} and {v.dtype}; they must be alike")
    mask.check(n)
    return n


def _quick_sizes(q: Tensor, k: Tensor, v: Tensor) -> dict[str, int] | None:
    """What `expect` would find if all fits, as it does for every token that is written."""
    if not all(isinstance(t, Tensor) and t.dim() == 4 for t in (q, k, v)):
        return None
    (B, H, T, E), (B2, K, S, E2), shape = q.shape, k.shape, v.shape
    if B != B2 or E != E2 or shape[:3] != (B, K, S):
        return None
    return {"B": B, "H": H, "T": T, "E": E, "K": K, "S": S, "value": shape[3]}
