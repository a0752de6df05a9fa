"""The best continuations of all beams of a sentence, without sorting the whole vocabulary.

The vocabulary is cut into blocks. The n best tokens stand in the n blocks with the best maxima, so
only those blocks are looked at closely. Equal sums go by the earlier beam, then the lower token.
"""

import torch
from torch import Tensor

from qkv.shapes import expect

BLOCK = 64


def best_continuations(logs: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest sums of a beam's score and a token's log p, best first, and where they are.

    logs (B, beams, V), scores (B, beams) -> sums, beams and tokens, each (B, count). `count` is at
    most twice the number of beams; what there is too little of is filled up with sums of −∞.
    """
    n = expect(logs=(logs, "B beams V"), scores=(scores, "B beams"))
    V, blocks = n["V"], -(-n["V"] // BLOCK)
    maxima = (_maxima(logs) + scores[:, :, None]).flatten(1)  # (B, beams·blocks)
    near = _first(maxima, min(count, maxima.shape[1])).sort(dim=1).values  # (B, near)

    beam, offset = near // blocks, near % blocks * BLOCK
    token = offset[:, :, None] + torch.arange(BLOCK, device=logs.device)  # (B, near, BLOCK)
    place = beam[:, :, None] * V + token.clamp(max=V - 1)
    sums = logs.flatten(1).gather(1, place.flatten(1)).view_as(place)
    sums = sums + scores.gather(1, beam)[:, :, None]
    sums = sums.masked_fill(token >= V, -torch.inf).flatten(1)  # (B, near·BLOCK)

    best = _first(sums, count)
    place = place.flatten(1).gather(1, best)
    return sums.gather(1, best), place // V, place % V


def _maxima(logs: Tensor) -> Tensor:
    """The largest log p of each block, (B, beams, blocks); the last block may be shorter."""
    whole = logs.shape[-1] // BLOCK * BLOCK
    parts = [logs[..., :whole].reshape(*logs.shape[:-1], -1, BLOCK).amax(dim=-1)] if whole else []
    if whole < logs.shape[-1]:
        parts.append(logs[..., whole:].amax(dim=-1, keepdim=True))
    return torch.cat(parts, dim=-1)


def _first(values: Tensor, count: int) -> Tensor:
    """Where the `count` largest of each row stand, largest first; of equal ones the earlier first.

    `topk` leaves the order of equal values open, so it is given whole numbers that differ: the bits
    of the float, turned so that they sort as it does, above the place counted from behind.
    """
    values = values.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)  # NaN shows
    bits = (values + 0.0).view(torch.int32)  # −0 becomes 0
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    behind = torch.arange(values.shape[1] - 1, -1, -1, device=values.device)
    return ((bits.long() << 32) | behind).topk(count, dim=1).indices
