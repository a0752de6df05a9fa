"""Many attentions side by side: how one wide vector becomes heads, and heads one vector again.

The paper projects the *whole* input for every head and then splits (`split_heads`). The notes
give head i its own *slice* of the input and a square matrix of that width (`project_slices`).
"""

import torch
from torch import Tensor

from qkv.errors import ShapeError
from qkv.shapes import expect


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H·E) -> (B, H, T, E): head h takes columns h·E to (h+1)·E."""
    if x.dim() != 3:
        raise ShapeError(f"x has shape {tuple(x.shape)} but needs 3 axes (B T width)")
    width = x.shape[-1]
    if heads < 1 or width % heads:
        raise ShapeError(f"{heads} heads must divide the width {width}")
    return x.view(*x.shape[:-1], heads, width // heads).transpose(1, 2)  # (B, H, T, E)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, E) -> (B, T, H·E), head after head."""
    if x.dim() != 4:
        raise ShapeError(f"x has shape {tuple(x.shape)} but needs 4 axes (B H T E)")
    return x.transpose(1, 2).flatten(-2)  # (B, T, H·E)


def project_block_diagonal(x: Tensor, weight: Tensor) -> Tensor:
    """Each head's slice of the input times that head's own matrix.

    x (B, T, D), weight (H, D/H, E) -> (B, H, T, E)
    """
    n = expect(x=(x, "B T D"), weight=(weight, "H slice E"))
    if n["H"] * n["slice"] != n["D"]:
        raise ShapeError(
            f"{n['H']} heads that read {n['slice']} numbers each need an input of width "
            f"{n['H'] * n['slice']}, but x has width {n['D']}"
        )
    slices = x.view(n["B"], n["T"], n["H"], n["slice"])
    return torch.einsum("bthi,hie->bhte", slices, weight)  # (B, H, T, E)


def project_low_rank(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """X·V_down·V_up: a matrix of rank r in 2·r·D numbers instead of D².

    x (B, T, D), down (D, r), up (r, width) -> (B, T, width)
    """
    expect(down=(down, "D rank"), up=(up, "rank width"), x=(x, "B T D"))
    return torch.matmul(torch.matmul(x, down), up)  # (B, T, width)
