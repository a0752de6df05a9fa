"""Normalisation: every position brought to a common size before or after a layer's work."""

from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from qkv.errors import ConfigError
from qkv.model.config import Config

# FOLDED model/dropout: Dropout: in training some numbers become 0 and the others larger
#   (Srivastava et al. 2014).
# FOLDED model/residual: Where a block normalises and what it carries past: the paper's way,
#   pre-norm, and the notes' way.
#
#   An arrangement gives each part of a block three things: a norm before it, how its result
#   joins
#   what came in, and a norm after.


class LayerNorm(Config):
    """Mean 0, variance 1 over the features, then a gain and a shift (Ba et al. 2016)."""

    kind: Literal["layer_norm"] = "layer_norm"
    eps: PositiveFloat = 1e-5
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, eps=self.eps, bias=self.bias)

    def parameters(self, width: int) -> int:
        return width * (1 + self.bias)

    def kept(self, width: int) -> int:
        """Numbers kept for the backward pass: the input, its mean and its spread."""
        return width + 2


class RMSNorm(Config):
    """Root mean square 1 over the features, then a gain (Zhang and Sennrich 2019).

    Around one, the gain is 1 + weight, so that decay pulls it towards 1 (Gemma Team 2024).
    """

    kind: Literal["rms_norm"] = "rms_norm"
    eps: PositiveFloat = 1e-6
    unit_offset: bool = False

    def build(self, width: int) -> nn.Module:
        kind = UnitOffsetRMSNorm if self.unit_offset else nn.RMSNorm
        return kind(width, eps=self.eps)

    def parameters(self, width: int) -> int:
        return width

    def kept(self, width: int) -> int:
        """The input, the normalised input and its size; torch does not fuse this one."""
        return 2 * width + 1


class UnitOffsetRMSNorm(nn.RMSNorm):
    """Its weights say how much the gains differ from 1."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1.0 + self.weight, self.eps)


Norm = Annotated[LayerNorm | RMSNorm, Field(discriminator="kind")]


def build_norm(norm: LayerNorm | RMSNorm | None, width: int) -> nn.Module:
    """The norm, or the identity where there is none."""
    return nn.Identity() if norm is None else norm.build(width)


def norm_parameters(norm: LayerNorm | RMSNorm | None, width: int) -> int:
    return 0 if norm is None else norm.parameters(width)


STEPS = 256  # chances there are, as each number is judged by one random byte


class Dropout(nn.Module):
    """Each number is 0 with chance p, else divided by the chance to stay; all are kept in eval.

    On a CPU torch draws a whole random word for each number, which takes longer than the layer it
    follows. Here a word is drawn for eight of them, so p is rounded to 256ths.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.threshold = round(p * STEPS)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.threshold:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.threshold / STEPS)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        chances = words.view(torch.uint8)[: x.numel()].view(x.shape)
        kept = (chances >= self.threshold).to(x.dtype)
        return x * kept.mul_(STEPS / (STEPS - self.threshold))


class ResidualAdd(nn.Module):
    """x + y: what came in is carried past the part. In training, some of y is dropped."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(y)


class NoResidual(ResidualAdd):
    """y: nothing is carried past the part."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.dropout(y)


class NormThenAdd(ResidualAdd):
    """x + norm(y): what the part adds is brought to size first."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__(dropout)
        self.norm = norm

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(self.norm(y))


class PassThrough(nn.Module):
    """x: the part is not there, and nothing joins."""

    def forward(self, x: Tensor, y: object) -> Tensor:
        return x


class SublayerConnection(NamedTuple):
    """How one part sits in its block."""

    before: nn.Module
    join: nn.Module
    after: nn.Module


class NormPlacement(Config):
    """Around attention, cross attention and feed-forward; all three alike unless it says so."""

    parallel: ClassVar[bool] = False  # attention and feed-forward both read what comes in

    def first_attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        """Around the attention of the first layer."""
        return self.attention(norm, width, dropout)

    def attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        raise NotImplementedError

    def cross(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> SublayerConnection:
        return self.attention(norm, width, dropout)

    def feed_forward(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return self.attention(norm, width, dropout)

    def final_norm(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        """After the last block."""
        return nn.Identity()

    def norm_count(self, layers: int, cross: bool) -> int:
        """How many norms a whole stack has."""
        return (3 if cross else 2) * layers


class PostNorm(NormPlacement):
    """norm(x + part(x)), as in the paper."""

    kind: Literal["post_norm"] = "post_norm"

    def attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), ResidualAdd(dropout), norm.build(width))


class PreNorm(NormPlacement):
    """x + part(norm(x)), and one norm after the last block (Xiong et al. 2020).

    Bare first: the first attention reads the embeddings as they are, as in ModernBERT, where an
    input norm stands right before it.
    """

    kind: Literal["pre_norm"] = "pre_norm"
    skip_first_norm: bool = False

    def first_attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        usual = self.attention(norm, width, dropout)
        return usual._replace(before=nn.Identity()) if self.skip_first_norm else usual

    def attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return SublayerConnection(norm.build(width), ResidualAdd(dropout), nn.Identity())

    def final_norm(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        return norm.build(width)

    def norm_count(self, layers: int, cross: bool) -> int:
        return super().norm_count(layers, cross) + 1 - self.skip_first_norm


class ParallelNorm(NormPlacement):
    """x + attention(norm(x)) + feed_forward(norm(x)), each with a norm of its own, and one norm
    after the last block (Black et al. 2022, "GPT-NeoX-20B").
    """

    kind: Literal["parallel_norm"] = "parallel_norm"
    parallel: ClassVar[bool] = True

    def attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return SublayerConnection(norm.build(width), ResidualAdd(dropout), nn.Identity())

    def cross(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> SublayerConnection:
        raise ConfigError("parallel_norm has no place for cross attention; use pre_norm")

    def final_norm(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        return norm.build(width)

    def norm_count(self, layers: int, cross: bool) -> int:
        return super().norm_count(layers, cross) + 1


class SandwichNorm(NormPlacement):
    """x + norm(part(norm(x))), and one norm after the last block (Ding et al. 2021)."""

    kind: Literal["sandwich_norm"] = "sandwich_norm"

    def attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return SublayerConnection(
            norm.build(width), NormThenAdd(norm.build(width), dropout), nn.Identity()
        )

    def final_norm(self, norm: LayerNorm | RMSNorm, width: int) -> nn.Module:
        return norm.build(width)

    def norm_count(self, layers: int, cross: bool) -> int:
        return 2 * super().norm_count(layers, cross) + 1


class SingleResidualNorm(NormPlacement):
    """norm(FFN(A) + A) with A = attention(x), as in the notes: one residual and one norm a block.

    The notes give no formula for a decoder. Here cross attention is added to A, without a norm of
    its own, so that a decoder keeps its own words beside what it reads.
    """

    kind: Literal["single_residual_norm"] = "single_residual_norm"

    def attention(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), NoResidual(dropout), nn.Identity())

    def cross(self, norm: LayerNorm | RMSNorm, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), ResidualAdd(dropout), nn.Identity())

    def feed_forward(
        self, norm: LayerNorm | RMSNorm, width: int, dropout: float
    ) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), ResidualAdd(dropout), norm.build(width))

    def norm_count(self, layers: int, cross: bool) -> int:
        return layers


ArrangementChoice = Annotated[
    PostNorm | PreNorm | ParallelNorm | SandwichNorm | SingleResidualNorm,
    Field(discriminator="kind"),
]
