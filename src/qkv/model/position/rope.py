"""RoPE, rotary position embedding (Su et al. 2021), and the ways to scale it to longer contexts.

RoPE rotates pairs of features of queries and keys by an angle that grows with the position. RoPE
scaling lowers the frequencies, so that a model reads more positions than it was trained on.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from qkv.attention import (
    RopeRotation,
    frequencies,
    ntk_base,
    rope_rotation,
    scale_linear,
    scale_llama3,
    scale_yarn,
)
from qkv.errors import ConfigError
from qkv.model.config import PartConfig, Size
from qkv.model.position.schemes import Position, PositionConfig, Sizes, angle_dtype


class RopeScaling(PartConfig):
    """How RoPE's frequencies are changed. A variant needs `kind` and `frequencies`."""

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Radians per position of each pair of features, (width/2,)."""
        raise NotImplementedError

    def amplitude(self) -> float:
        """The factor by which rotated queries and keys also grow."""
        return 1.0


class NoScaling(RopeScaling):
    """The frequencies of the RoFormer paper."""

    kind: Literal["none"] = "none"

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return frequencies(width, base, device, dtype)


class LinearScaling(RopeScaling):
    """All frequencies divided by `factor` (Chen et al. 2023, position interpolation)."""

    kind: Literal["linear"] = "linear"
    factor: PositiveFloat

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return scale_linear(frequencies(width, base, device, dtype), self.factor)


class NtkScaling(RopeScaling):
    """A larger base ("NTK-aware"): low frequencies shrink by `factor`, high ones hardly change."""

    kind: Literal["ntk"] = "ntk"
    factor: PositiveFloat

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return frequencies(width, ntk_base(base, self.factor, width), device, dtype)


class Llama3Scaling(RopeScaling):
    """Llama 3's rule: only pairs with fewer than `high_freq_factor` full rotations within the
    trained length are slowed down (Llama Team 2024).
    """

    kind: Literal["llama3"] = "llama3"
    factor: PositiveFloat
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    trained_length: Size

    @model_validator(mode="after")
    def _check_order(self) -> "Llama3Scaling":
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor={self.low_freq_factor} must be below "
                f"high_freq_factor={self.high_freq_factor}"
            )
        return self

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return scale_llama3(
            frequencies(width, base, device, dtype),
            self.factor,
            self.low_freq_factor,
            self.high_freq_factor,
            self.trained_length,
        )


class YarnScaling(RopeScaling):
    """YaRN: high frequencies stay, low ones are divided by `factor` (Peng et al. 2023).

    Queries and keys also grow, by `attention_factor` or, if that is not given, by the paper's rule.
    """

    kind: Literal["yarn"] = "yarn"
    factor: PositiveFloat
    beta_fast: PositiveFloat = 32.0
    beta_slow: PositiveFloat = 1.0
    trained_length: Size
    attention_factor: PositiveFloat | None = None

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return scale_yarn(
            frequencies(width, base, device, dtype),
            base,
            self.factor,
            self.beta_fast,
            self.beta_slow,
            self.trained_length,
        )

    def amplitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.factor <= 1.0:
            return 1.0
        return 0.1 * math.log(self.factor) + 1.0  # √(1/t) of the paper's equation 22


class Rope(PositionConfig):
    """Rotates `fraction` of each head's features, in pairs of neighbours (`interleaved`) or of one
    feature from each half.
    """

    kind: Literal["rope"] = "rope"
    base: PositiveFloat = 10_000.0
    interleaved: bool = False
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    scaling: RopeScaling = NoScaling()

    def rotated_width(self, sizes: Sizes) -> int:
        """How many features of a head are rotated."""
        return int(sizes.head_width * self.fraction)

    def check(self, sizes: Sizes) -> None:
        if isinstance(self.scaling, YarnScaling) and self.base <= 1.0:
            raise ConfigError(f"base={self.base} rotates all pairs alike; YaRN needs one above 1")
        minimum = 2
        if isinstance(self.scaling, NtkScaling):
            minimum = 4  # its new base is computed from the fastest and the slowest pair
        width = self.rotated_width(sizes)
        if width < minimum or width % 2:
            raise ConfigError(
                f"RoPE rotates pairs of features, but fraction={self.fraction} of "
                f"head_width={sizes.head_width} is {width}; it must be an even number of "
                f"{minimum} or more"
            )

    def build(self, sizes: Sizes) -> Position:
        return RopePosition(self, self.rotated_width(sizes))


class RopePosition(Position):
    """Rotates the first `width` features of queries and keys."""

    def __init__(self, config: Rope, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width

    def rope(self, positions: Tensor, dtype: torch.dtype) -> RopeRotation:
        config = self.config
        rates = config.scaling.frequencies(
            config.base, self.width, angle_dtype(dtype), positions.device
        )
        return rope_rotation(positions, rates, config.interleaved, config.scaling.amplitude())
