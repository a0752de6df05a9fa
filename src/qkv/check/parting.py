"""Two passes that should be equal, compared part by part: where do they part, and how far?"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.check.passage import AXES, Values

Pair = tuple[Tensor, Tensor]
Align = Callable[[Tensor, Tensor], Pair]


@dataclass(frozen=True)
class Parting:
    """How far two passes are apart at most, and at which place and position first.

    Distances are in parts of the largest number at that place. If nothing is beyond the tolerance
    the place is where they are furthest apart.
    """

    worst: float
    place: str
    position: int | None = None

    def told(self, *where: str) -> str:
        """The place in words, with what the caller knows of it."""
        position = () if self.position is None else (f"position {self.position}",)
        return ", ".join(filter(None, (self.place, *where, *position)))


def beginnings(one: Tensor, other: Tensor) -> Pair:
    """The positions that both have, counted from the first."""
    axis = AXES.get(one.dim())
    if axis is None or other.dim() != one.dim():
        return one, other
    both = min(one.shape[axis], other.shape[axis])
    return one.narrow(axis, 0, both), other.narrow(axis, 0, both)


def last_ones(one: Tensor, other: Tensor) -> Pair:
    """The last position of both."""
    axis = AXES.get(one.dim())
    if axis is None or other.dim() != one.dim():
        return one, other
    return one.narrow(axis, one.shape[axis] - 1, 1), other.narrow(axis, other.shape[axis] - 1, 1)


def parting(one: Values, other: Values, tolerance: float, align: Align = beginnings) -> Parting:
    """Where `other` departs from `one`, which is taken to be right; places that only one of them
    has, or where they have other shapes, are passed over.
    """
    furthest, first = Parting(-1.0, ""), None
    for place, value in one.items():
        if place not in other:
            continue
        a, b = align(value, other[place])
        if a.shape != b.shape or not a.numel():
            continue
        distance, position = _distance(a, b, tolerance)
        found = Parting(distance, place, position)
        furthest = max(furthest, found, key=lambda parting: parting.worst)
        first = found if first is None and distance > tolerance else first
    if furthest.worst < 0:
        return Parting(math.inf, "no part of the model could be compared")
    told = furthest if first is None else first
    return Parting(furthest.worst, told.place, told.position)


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference, in parts of the largest number of the first."""
    return _distance(one, other, math.inf)[0]


def _distance(one: Tensor, other: Tensor, tolerance: float) -> tuple[float, int | None]:
    """And the first position beyond the tolerance, else the one with the largest difference."""
    if torch.equal(one, other):
        return 0.0, None
    gap, size = (one.float() - other.float()).abs(), float(one.float().abs().max())
    gap = (gap / (size or 1.0)).nan_to_num(nan=math.inf)
    axis = AXES.get(gap.dim())
    if axis is None:
        return float(gap.max()), None
    each = gap.movedim(axis, 0).flatten(1).amax(dim=1)  # of each position
    beyond = (each > tolerance).nonzero()
    position = int(beyond[0]) if len(beyond) else int(each.argmax())
    return float(each.max()), position
