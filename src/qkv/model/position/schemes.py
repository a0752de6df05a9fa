"""Position schemes: none, learned, sinusoidal, ALiBi and T5's relative buckets.

A scheme may do three things, and most do one of them: add something to the embeddings, rotate
queries and keys (RoPE, in `rope.py`), or add a bias to the attention scores.
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
from qkv.model.config import Count, PartConfig, Size
from qkv.model.norm import count_parameters


class Sizes(NamedTuple):
    """The sizes a scheme is built for; `width` is that of the embeddings."""

    width: int
    heads: int
    head_width: int
    length: int


class Position(nn.Module):
    """No position at all; each scheme overrides one of the three methods."""

    limit: int | None = None  # the number of positions it can encode; None: any number

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, D) with its positions (T,) or (B, T) added."""
        return x

    def rope(self, positions: Tensor, dtype: torch.dtype) -> RopeRotation | NoRope:
        """The rotation of queries and keys at these positions."""
        return NO_ROPE

    def mask(self, dtype: torch.dtype) -> Mask:
        """A mask whose bias is added to the scores."""
        return FULL_MASK


class PositionConfig(PartConfig):
    """A position scheme. A variant needs `kind` and `build`."""

    def check(self, sizes: Sizes) -> None:
        """Raise a ConfigError if the scheme cannot be built for these sizes."""

    def build(self, sizes: Sizes) -> Position:
        """The module that encodes positions."""
        return Position()

    def parameters(self, sizes: Sizes) -> int:
        """How many parameters `build` makes."""
        return count_parameters(lambda: self.build(sizes))


class NoPosition(PositionConfig):
    """Word order is invisible, except through a causal mask."""

    kind: Literal["none"] = "none"


class Learned(PositionConfig):
    """A trained vector for each position; the first `offset` rows of the table are unused."""

    kind: Literal["learned"] = "learned"
    offset: Count = 0

    def build(self, sizes: Sizes) -> Position:
        return LearnedPositions(sizes.length, sizes.width, self.offset)


class LearnedPositions(Position):
    """Adds row `position + offset` of a trained table to each embedding."""

    def __init__(self, length: int, width: int, offset: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length + offset, width))
        self.limit = length
        self.offset = offset

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.weight[positions + self.offset]


class Sinusoidal(PositionConfig):
    """Fixed sines and cosines (Vaswani et al. 2017); `offset` is the first position's number."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0
    interleaved: bool = True
    endpoint: bool = False
    offset: int = 0

    def build(self, sizes: Sizes) -> Position:
        return SinusoidalPositions(self)


class SinusoidalPositions(Position):
    """Adds sines and cosines of the position to each embedding."""

    def __init__(self, config: Sinusoidal) -> None:
        super().__init__()
        self.config = config

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        config = self.config
        waves = sinusoids(
            positions + config.offset,
            x.shape[-1],
            config.base,
            config.interleaved,
            config.endpoint,
            angle_dtype(x.dtype),
        )
        return x + waves.to(x.dtype)


class Alibi(PositionConfig):
    """Scores lose a fixed amount for each position of distance (Press et al. 2022)."""

    kind: Literal["alibi"] = "alibi"

    def build(self, sizes: Sizes) -> Position:
        return AlibiPositions(sizes.heads)


class AlibiPositions(Position):
    """Adds −slope · distance to the scores, with a slope for each head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def mask(self, dtype: torch.dtype) -> Mask:
        return Mask((AlibiMask(alibi_slopes(self.heads, angle_dtype(dtype))),))


class RelativeBuckets(PositionConfig):
    """Scores gain a learned number for each range of distances (Raffel et al. 2020)."""

    kind: Literal["relative_buckets"] = "relative_buckets"
    buckets: Annotated[int, Field(ge=4)] = 32
    max_distance: Size = 128
    bidirectional: bool = True

    @model_validator(mode="after")
    def _check_max_distance(self) -> "RelativeBuckets":
        exact = self.buckets // 2
        if self.bidirectional:
            exact = self.buckets // 4
        if self.max_distance <= exact:
            raise ValueError(
                f"max_distance={self.max_distance} must be more than {exact}, the distances that "
                f"buckets={self.buckets} hold one by one"
            )
        return self

    def build(self, sizes: Sizes) -> Position:
        return RelativePositions(self, sizes.heads)


class RelativePositions(Position):
    """Adds a learned number to the scores; one table for all layers, as in T5."""

    def __init__(self, config: RelativeBuckets, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.buckets, heads))
        self.config = config

    def mask(self, dtype: torch.dtype) -> Mask:
        bias = BucketMask(self.weight, self.config.max_distance, self.config.bidirectional)
        return Mask((bias,))


def angle_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of angles and slopes: at least float32, whatever the model computes in."""
    return torch.promote_types(dtype, torch.float32)
