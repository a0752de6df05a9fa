"""What every position scheme answers, most of it with "nothing".

What to add to the embeddings, how to turn queries and keys, and what to add to the scores.
"""

from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from qkv.attention import (
    FULL_MASK,
    NO_ROPE,
    AlibiMask,
    BucketMask,
    Mask,
    NoRope,
    RopeRotation,
    alibi_slopes,
    sinusoids,
)
from qkv.model.config import Config, Count, Size

# FOLDED model/position/learned: A trained vector for each position, added to the embeddings.
# FOLDED model/position/sinusoidal: Waves added to the embeddings (Vaswani et al. 2017).
# FOLDED model/position/relative: Distances as numbers added to the scores: ALiBi's fixed slopes
#   and T5's learned buckets.


class Sizes(NamedTuple):
    """The sizes a scheme is built for."""

    width: int
    heads: int
    head_width: int
    length: int


class Position(nn.Module):
    """No position at all; each scheme changes one of the three answers."""

    limit: int | None = None  # the most positions there are vectors for

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, D) with its positions (T,) or (B, T) in it."""
        return x

    def rope(self, positions: Tensor, dtype: torch.dtype) -> RopeRotation | NoRope:
        """How queries and keys at these positions are turned."""
        return NO_ROPE

    def mask(self, dtype: torch.dtype) -> Mask:
        """What is added to the scores."""
        return FULL_MASK


class PositionScheme(Config):
    """The choice of a scheme: it builds the module and counts what that will learn."""

    def fit(self, room: Sizes) -> None:
        """Raise a ConfigError if the scheme cannot be built for these sizes."""

    def build(self, room: Sizes) -> Position:
        return Position()

    def parameters(self, room: Sizes) -> int:
        return 0


class NoPosition(PositionScheme):
    """Word order is not seen, except through a causal mask."""

    kind: Literal["none"] = "none"


def angle_dtype(dtype: torch.dtype) -> torch.dtype:
    """Waves are computed in float32 at least, whatever the model computes in."""
    return torch.promote_types(dtype, torch.float32)


class Learned(PositionScheme):
    """One row a position; the first `offset` rows are kept but never used."""

    kind: Literal["learned"] = "learned"
    offset: Count = 0

    def build(self, room: Sizes) -> Position:
        return LearnedPositions(room.length, room.width, self.offset)

    def parameters(self, room: Sizes) -> int:
        return (room.length + self.offset) * room.width


class LearnedPositions(Position):
    def __init__(self, length: int, width: int, offset: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length + offset, width))
        self.limit, self.offset = length, offset

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.weight[positions + self.offset]


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines; `offset` is the number of the first position."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0
    interleaved: bool = True
    endpoint: bool = False
    offset: int = 0

    def build(self, room: Sizes) -> Position:
        return SinusoidalPositions(self)


class SinusoidalPositions(Position):
    def __init__(self, choice: Sinusoidal) -> None:
        super().__init__()
        self.config = choice

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        c, width, dtype = self.config, x.shape[-1], angle_dtype(x.dtype)
        places = positions + c.offset
        return x + sinusoids(places, width, c.base, c.interleaved, c.endpoint, dtype).to(x.dtype)


class Alibi(PositionScheme):
    """Scores lose a fixed amount for each position of distance (Press et al. 2022)."""

    kind: Literal["alibi"] = "alibi"

    def build(self, room: Sizes) -> Position:
        return AlibiPositions(room.heads)


class AlibiPositions(Position):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask((AlibiMask(alibi_slopes(self.heads, angle_dtype(dtype))),))


class RelativeBuckets(PositionScheme):
    """Scores gain a learned number for each range of distances (Raffel et al. 2020)."""

    kind: Literal["relative_buckets"] = "relative_buckets"
    buckets: Annotated[int, Field(ge=4)] = 32
    max_distance: Size = 128
    bidirectional: bool = True

    @model_validator(mode="after")
    def _far_enough(self) -> "RelativeBuckets":
        near = self.buckets // (4 if self.bidirectional else 2)
        if self.max_distance <= near:
            raise ValueError(
                f"max_distance={self.max_distance} must be more than {near}, the distances that "
                f"buckets={self.buckets} hold one by one"
            )
        return self

    def build(self, room: Sizes) -> Position:
        return RelativePositions(self, room.heads)

    def parameters(self, room: Sizes) -> int:
        return self.buckets * room.heads


class RelativePositions(Position):
    """One table for all layers, as in T5."""

    def __init__(self, choice: RelativeBuckets, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(choice.buckets, heads))
        self.config = choice

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask((BucketMask(self.weight, self.config.max_distance, self.config.bidirectional),))
