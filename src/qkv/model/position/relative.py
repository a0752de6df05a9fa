"""Distances as numbers added to the scores: ALiBi's fixed slopes and T5's learned buckets."""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from qkv.attention import Alibi, Buckets, Mask, alibi_slopes
from qkv.model.choice import Size
from qkv.model.position.scheme import Position, Room, Scheme, exact


class AlibiSlopes(Scheme):
    """Scores lose a fixed amount for each position of distance (Press et al. 2022)."""

    kind: Literal["alibi"] = "alibi"

    def build(self, room: Room) -> Position:
        return FixedSlopes(room.heads)


class FixedSlopes(Position):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask((Alibi(alibi_slopes(self.heads, exact(dtype))),))


class RelativeBuckets(Scheme):
    """Scores gain a learned number for each range of distances (Raffel et al. 2020)."""

    kind: Literal["relative_buckets"] = "relative_buckets"
    buckets: Annotated[int, Field(ge=4)] = 32
    farthest: Size = 128
    both_ways: bool = True

    @model_validator(mode="after")
    def _far_enough(self) -> "RelativeBuckets":
        near = self.buckets // (4 if self.both_ways else 2)
        if self.farthest <= near:
            raise ValueError(
                f"farthest={self.farthest} must be more than {near}, the distances that "
                f"buckets={self.buckets} hold one by one"
            )
        return self

    def build(self, room: Room) -> Position:
        return LearnedDistances(self, room.heads)

    def parameters(self, room: Room) -> int:
        return self.buckets * room.heads


class LearnedDistances(Position):
    """One table for all layers, as in T5."""

    def __init__(self, choice: RelativeBuckets, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(choice.buckets, heads))
        self.choice = choice

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask((Buckets(self.weight, self.choice.farthest, self.choice.both_ways),))
