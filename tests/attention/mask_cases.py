"""Every kind of mask, and random ones of each, for the tests that hold for all of them."""

import torch
from hypothesis import strategies as st

from qkv.attention import AlibiMask, BucketMask, Mask

KINDS = ["full", "causal", "window", "padding", "documents", "explicit", "bias", "alibi", "buckets"]


def one_mask(draw: st.DrawFn, kind: str, B: int, H: int, T: int, S: int) -> Mask:
    """A mask of that kind that fits these sizes, with numbers chosen by hypothesis."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999), label="mask seed"))
    if kind == "full":
        return Mask.full()
    if kind == "causal":
        return Mask.causal()
    if kind == "window":
        return Mask.window(draw(st.integers(0, S)), draw(st.integers(0, 3)))
    if kind == "padding":
        lengths = draw(st.lists(st.integers(0, S), min_size=B, max_size=B), label="lengths")
        return Mask.padding(torch.tensor(lengths))
    if kind == "documents":
        queries = torch.randint(0, 3, (B, T), generator=generator)
        return Mask.documents(queries, torch.randint(0, 3, (B, S), generator=generator))
    if kind == "explicit":
        return Mask.explicit(_grid(draw, generator, B, H, T, S))
    if kind == "bias":
        shape = draw(st.sampled_from([(T, S), (B, H, T, S), (1, H, T, S), (B, 1, 1, S)]))
        return Mask.bias(2.0 * torch.randn(shape, generator=generator))
    if kind == "alibi":
        return Mask((AlibiMask(torch.rand(H, generator=generator)),))
    table = torch.randn(8, H, generator=generator)
    return Mask((BucketMask(table, max_distance=9, bidirectional=draw(st.booleans())),))


def composed(draw: st.DrawFn, B: int, H: int, T: int, S: int) -> Mask:
    """Two or three masks of any kinds, joined with `&`."""
    mask = Mask.full()
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=3), label="kinds"):
        mask = mask & one_mask(draw, kind, B, H, T, S)
    return mask


def _grid(
    draw: st.DrawFn, generator: torch.Generator, B: int, H: int, T: int, S: int
) -> torch.Tensor:
    shapes = [(T, S), (1, S), (T, 1), (B, H, T, S), (B, 1, T, S), (1, H, 1, S)]
    shape = draw(st.sampled_from(shapes), label="grid shape")
    grid = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.2, 0.7]))
    blind = draw(st.integers(0, shape[-2] - 1), label="row that sees nothing")
    grid[..., blind, :] = False
    return grid
