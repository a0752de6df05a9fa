"""Multi-head attention: splitting vectors into heads, joining heads, and structured projections.

Vaswani et al. 2017, section 3.2.2: every head reads a projection of the entire input, so one
matrix projects for all heads and its output is split (`split_heads`). In a block-diagonal
projection head h reads only slice h of the input (`project_block_diagonal`), which needs H times
fewer weights. A low-rank projection factors the matrix instead (`project_low_rank`).
"""

import torch
from torch import Tensor

from qkv.errors import ShapeError
from qkv.shapes import expect


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H·E) -> (B, H, T, E): head h is columns h·E to (h+1)·E; a view, nothing is copied."""
    if x.dim() != 3:
        raise ShapeError(f"x has shape {tuple(x.shape)} but needs 3 axes (B T width)")
    width = x.shape[-1]
    if heads < 1 or width % heads:
        raise ShapeError(f"heads={heads} must divide the width {width}")
    return x.view(*x.shape[:-1], heads, width // heads).transpose(1, 2)  # (B, H, T, E)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, E) -> (B, T, H·E): the heads of each position, concatenated."""
    if x.dim() != 4:
        raise ShapeError(f"x has shape {tuple(x.shape)} but needs 4 axes (B H T E)")
    return x.transpose(1, 2).flatten(-2)  # (B, T, H·E)


def project_block_diagonal(x: Tensor, weight: Tensor) -> Tensor:
    """Each head's slice of the input times that head's own matrix: a block-diagonal projection.

    x (B, T, D), weight (H, D/H, E) -> (B, H, T, E)
    """
    n = expect(x=(x, "B T D"), weight=(weight, "H slice E"))
    if n["H"] * n["slice"] != n["D"]:
        raise ShapeError(
            f"{n['H']} heads that read {n['slice']} numbers each need an input of width "
            f"{n['H'] * n['slice']}, but x has width {n['D']}"
        )
    # An einsum over slices, because a dense block-diagonal matrix would be mostly zeros.
    slices = x.view(n["B"], n["T"], n["H"], n["slice"])
    return torch.einsum("bthi,hie->bhte", slices, weight)  # (B, H, T, E)


def project_low_rank(x: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """x·down·up: a projection of rank r with r·(D + width) weights instead of D·width.

    x (B, T, D), down (D, r), up (r, width) -> (B, T, width)
    """
    expect(down=(down, "D rank"), up=(up, "rank width"), x=(x, "B T D"))
    # From left to right: down·up would be the large matrix that the factors avoid.
    return torch.matmul(torch.matmul(x, down), up)  # (B, T, width)
