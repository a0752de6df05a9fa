"""Normalisation: every position brought to a common size before or after a layer's work."""

from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from qkv.model.choice import Choice


class LayerNorm(Choice):
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


class RMSNorm(Choice):
    """Root mean square 1 over the features, then a gain (Zhang and Sennrich 2019).

    Around one, the gain is 1 + weight, so that decay pulls it towards 1 (Gemma Team 2024).
    """

    kind: Literal["rms_norm"] = "rms_norm"
    eps: PositiveFloat = 1e-6
    around_one: bool = False

    def build(self, width: int) -> nn.Module:
        kind = RMSNormAroundOne if self.around_one else nn.RMSNorm
        return kind(width, eps=self.eps)

    def parameters(self, width: int) -> int:
        return width

    def kept(self, width: int) -> int:
        """The input, the normalised input and its size; torch does not fuse this one."""
        return 2 * width + 1


class RMSNormAroundOne(nn.RMSNorm):
    """Its weights say how much the gains differ from 1."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1.0 + self.weight, self.eps)


Norm = Annotated[LayerNorm | RMSNorm, Field(discriminator="kind")]


def build_norm(norm: LayerNorm | RMSNorm | None, width: int) -> nn.Module:
    """The norm, or the identity where there is none."""
    return nn.Identity() if norm is None else norm.build(width)


def norm_parameters(norm: LayerNorm | RMSNorm | None, width: int) -> int:
    return 0 if norm is None else norm.parameters(width)
