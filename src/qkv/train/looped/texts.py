"""Texts one after the other in a single row, without what pads them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.attention import Mask
from qkv.attention.mask import Causal, Documents, Ending, Padding, Part


@dataclass(frozen=True, eq=False)
class Row(Part):
    """Which tokens of a row are one text: text b has counts[b] of them, from starts[b] on.

    As a part of a mask it says that texts see only themselves; `causal`, only what came before.
    """

    starts: Tensor  # (texts,)
    counts: Tensor  # (texts,)
    turns: Tensor  # (texts,): the row of a rotation where each begins
    causal: bool
    real: Tensor | None  # (N,): which of the B·T positions they are, if not all
    shape: tuple[int, int]  # B, T

    @classmethod
    def of(cls, mask: Mask, x: Tensor, positions: Tensor | None) -> Row | None:
        """The texts of x (B, T, D), if this mask only tells texts apart."""
        B, T = x.shape[:2]
        kinds = {type(part) for part in mask.parts}
        if not kinds <= {Causal, Padding, Ending, Documents} or not B * T:
            return None
        causal = Causal in kinds
        ends = [part for part in mask.parts if isinstance(part, Padding | Ending)]
        documents = [part for part in mask.parts if isinstance(part, Documents)]
        if Ending in kinds and not causal:
            return None
        if documents:
            whole = positions is not None and positions.dim() == 2  # so each token has its own turn
            if ends or len(documents) > 1 or not whole:
                return None
            return _documents(cls, documents[0], causal, T)
        if positions is not None:
            return None
        lengths = ends[0].lengths if ends else torch.full((B,), T)
        for part in ends[1:]:
            lengths = torch.minimum(lengths, part.lengths)
        return cls.padded(lengths.to(torch.int64), T, causal)

    @classmethod
    def padded(cls, lengths: Tensor, T: int, causal: bool) -> Row:
        """Of the first lengths[b] of T positions in each row."""
        B = len(lengths)
        starts = lengths.cumsum(0) - lengths
        whole = bool((lengths == T).all())
        real = None
        if not whole:
            real = (torch.arange(T) < lengths[:, None]).flatten().nonzero()[:, 0]
        return cls(starts, lengths.contiguous(), torch.zeros_like(lengths), causal, real, (B, T))

    def packed(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (1, N, D)"""
        flat = x.reshape(-1, x.shape[-1])
        return (flat if self.real is None else flat.index_select(0, self.real))[None]

    def unpacked(self, x: Tensor) -> Tensor:
        """(1, N, D) -> (B, T, D), with zeros where nothing real stood."""
        B, T = self.shape
        if self.real is None:
            return x.view(B, T, -1)
        return x.new_zeros(B * T, x.shape[-1]).index_copy(0, self.real, x[0]).view(B, T, -1)


def _documents(kind: type[Row], part: Documents, causal: bool, T: int) -> Row | None:
    """Each run of one document is a text."""
    ids = part.query_ids
    if part.key_ids is not ids or bool((ids[:, 1:] < ids[:, :-1]).any()):
        return None
    fresh = torch.ones_like(ids, dtype=torch.bool)
    fresh[:, 1:] = ids[:, 1:] != ids[:, :-1]
    starts = fresh.flatten().nonzero()[:, 0]
    counts = torch.diff(starts, append=starts.new_tensor([ids.numel()]))
    return kind(starts, counts, starts, causal, None, (len(ids), T))
