"""Norms, dropout, and where in a layer the norms stand.

A norm brings the features of each position to a common scale. A norm placement decides, for each
sublayer (attention, cross attention, feed-forward), which norm comes before it, how its result is
added to the residual stream, and which norm comes after.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from qkv.errors import ConfigError
from qkv.model.config import PartConfig

_LEVELS = 256  # of a dropout probability: one random byte decides for each element


class NormConfig(PartConfig):
    """A norm over the features of each position. A variant needs `kind` and `build`."""

    if TYPE_CHECKING:
        eps: float

    def build(self, width: int) -> nn.Module:
        """The module: (..., width) -> (..., width)."""
        raise NotImplementedError

    def parameters(self, width: int) -> int:
        """How many parameters `build` makes."""
        return count_parameters(lambda: self.build(width))

    def activation_elements(self, width: int) -> int:
        """Elements that autograd saves per position; a guess where a variant does not say."""
        return 2 * width


class LayerNorm(NormConfig):
    """Mean 0, variance 1 over the features, then a gain and a shift (Ba et al. 2016)."""

    kind: Literal["layer_norm"] = "layer_norm"
    eps: PositiveFloat = 1e-5
    bias: bool = True

    def build(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, eps=self.eps, bias=self.bias)

    def parameters(self, width: int) -> int:
        return width * (1 + self.bias)

    def activation_elements(self, width: int) -> int:
        return width + 2  # the input, its mean and its standard deviation


class RMSNorm(NormConfig):
    """Root mean square 1 over the features, then a gain (Zhang and Sennrich 2019).

    unit_offset: the gain is 1 + weight, so that weight decay pulls it towards 1 (Gemma Team 2024).
    """

    kind: Literal["rms_norm"] = "rms_norm"
    eps: PositiveFloat = 1e-6
    unit_offset: bool = False

    def build(self, width: int) -> nn.Module:
        if self.unit_offset:
            return UnitOffsetRMSNorm(width, eps=self.eps)
        return nn.RMSNorm(width, eps=self.eps)

    def parameters(self, width: int) -> int:
        return width

    def activation_elements(self, width: int) -> int:
        # torch does not fuse this norm: it saves the input, the normalised input and the RMS.
        return 2 * width + 1


class UnitOffsetRMSNorm(nn.RMSNorm):
    """RMSNorm whose gain is 1 + weight."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1.0 + self.weight, self.eps)


def build_norm(norm: NormConfig | None, width: int) -> nn.Module:
    """The norm, or the identity for None."""
    if norm is None:
        return nn.Identity()
    return norm.build(width)


def norm_parameters(norm: NormConfig | None, width: int) -> int:
    """The norm's number of parameters, 0 for None."""
    if norm is None:
        return 0
    return norm.parameters(width)


def count_parameters(build: Callable[[], nn.Module]) -> int:
    """The number of parameters of what `build` returns, without allocating them."""
    with torch.device("meta"):
        module = build()
    return sum(parameter.numel() for parameter in module.parameters())


class Dropout(nn.Module):
    """In training each element is 0 with probability p, else scaled by 1/(1 − p).

    (Srivastava et al. 2014.) On a CPU, torch draws a 64-bit random word for each element, which
    takes longer than the layer before it. Here one word serves eight elements, a byte each, so p
    is rounded to 256ths.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.threshold = round(p * _LEVELS)  # a byte below it drops its element

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.threshold:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.threshold / _LEVELS)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        random_bytes = words.view(torch.uint8)[: x.numel()].view(x.shape)
        mask = (random_bytes >= self.threshold).to(x.dtype)
        return x * mask.mul_(_LEVELS / (_LEVELS - self.threshold))


class ResidualAdd(nn.Module):
    """x + dropout(y): the residual connection around a sublayer."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(y)


class NoResidual(ResidualAdd):
    """dropout(y): a sublayer without a residual connection."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.dropout(y)


class NormThenAdd(ResidualAdd):
    """x + dropout(norm(y)): the sublayer's result is normalised before it is added."""

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__(dropout)
        self.norm = norm

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(self.norm(y))


class PassThrough(nn.Module):
    """x: for a block without this sublayer."""

    def forward(self, x: Tensor, y: object) -> Tensor:
        return x


class SublayerConnection(NamedTuple):
    """How one sublayer is connected: after(join(x, sublayer(before(x))))."""

    before: nn.Module
    join: nn.Module
    after: nn.Module


class NormPlacement(PartConfig):
    """Where the norms of a block stand. A variant needs `kind` and `attention`; unless it says
    otherwise, cross attention and feed-forward are connected like attention.
    """

    parallel: ClassVar[bool] = False  # attention and feed-forward read the same input

    def attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        """Around self-attention."""
        raise NotImplementedError

    def first_attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        """Around the self-attention of the first layer."""
        return self.attention(norm, width, dropout)

    def cross(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        """Around cross attention."""
        return self.attention(norm, width, dropout)

    def feed_forward(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        """Around the feed-forward."""
        return self.attention(norm, width, dropout)

    def final_norm(self, norm: NormConfig, width: int) -> nn.Module:
        """After the last block."""
        return nn.Identity()

    def norm_count(self, layers: int, cross: bool) -> int:
        """How many norms a stack of that many layers has."""
        sublayers = 2
        if cross:
            sublayers = 3
        return sublayers * layers


class PostNorm(NormPlacement):
    """norm(x + sublayer(x)) (Vaswani et al. 2017)."""

    kind: Literal["post_norm"] = "post_norm"

    def attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), ResidualAdd(dropout), norm.build(width))


class PreNorm(NormPlacement):
    """x + sublayer(norm(x)), and one norm after the last block (Xiong et al. 2020).

    skip_first_norm: the first attention reads the embeddings as they are, as in ModernBERT, where
    an input norm stands right before it.
    """

    kind: Literal["pre_norm"] = "pre_norm"
    skip_first_norm: bool = False

    def first_attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        connection = self.attention(norm, width, dropout)
        if self.skip_first_norm:
            return connection._replace(before=nn.Identity())
        return connection

    def attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(norm.build(width), ResidualAdd(dropout), nn.Identity())

    def final_norm(self, norm: NormConfig, width: int) -> nn.Module:
        return norm.build(width)

    def norm_count(self, layers: int, cross: bool) -> int:
        return super().norm_count(layers, cross) + 1 - self.skip_first_norm


class ParallelNorm(NormPlacement):
    """x + attention(norm(x)) + feed_forward(norm(x)), each with a norm of its own, and one norm
    after the last block (Black et al. 2022, "GPT-NeoX-20B").
    """

    kind: Literal["parallel_norm"] = "parallel_norm"
    parallel: ClassVar[bool] = True

    def attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(norm.build(width), ResidualAdd(dropout), nn.Identity())

    def cross(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        raise ConfigError("parallel_norm does not support cross attention; use pre_norm")

    def final_norm(self, norm: NormConfig, width: int) -> nn.Module:
        return norm.build(width)

    def norm_count(self, layers: int, cross: bool) -> int:
        return super().norm_count(layers, cross) + 1


class SandwichNorm(NormPlacement):
    """x + norm(sublayer(norm(x))), and one norm after the last block (Ding et al. 2021)."""

    kind: Literal["sandwich_norm"] = "sandwich_norm"

    def attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        before = norm.build(width)
        return SublayerConnection(before, NormThenAdd(norm.build(width), dropout), nn.Identity())

    def final_norm(self, norm: NormConfig, width: int) -> nn.Module:
        return norm.build(width)

    def norm_count(self, layers: int, cross: bool) -> int:
        return 2 * super().norm_count(layers, cross) + 1


class SingleResidualNorm(NormPlacement):
    """norm(FFN(A) + A) with A = attention(x): one residual connection and one norm a block.

    This is the block of the lecture notes this project began with. They give no formula for a
    decoder; here cross attention is added to A without a norm of its own, so that a decoder keeps
    its own states next to what it reads.
    """

    kind: Literal["single_residual_norm"] = "single_residual_norm"

    def attention(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), NoResidual(dropout), nn.Identity())

    def cross(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), ResidualAdd(dropout), nn.Identity())

    def feed_forward(self, norm: NormConfig, width: int, dropout: float) -> SublayerConnection:
        return SublayerConnection(nn.Identity(), ResidualAdd(dropout), norm.build(width))

    def norm_count(self, layers: int, cross: bool) -> int:
        return layers
