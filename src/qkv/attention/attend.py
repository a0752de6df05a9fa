"""The one place that chooses a kernel."""

from torch import Tensor

from qkv.attention.capped import capped
from qkv.attention.fused import fused
from qkv.attention.mask import SEE_ALL, Mask
from qkv.attention.reference import reference
from qkv.errors import MaskError, ShapeError


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = SEE_ALL,
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
    if mask.learns():  # torch's fused kernel takes no bias that needs a gradient
        return reference(q, k, v, mask, scale).output
    return fused(q, k, v, mask, scale)
