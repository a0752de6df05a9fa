"""Queries and keys turned by their position (Su et al. 2021), with the ways to reach further."""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor

from qkv.attention import RopeRotation, frequencies, rope_rotation
from qkv.attention.positions import (
    ntk_base,
    scale_linear,
    scale_llama3,
    scale_yarn,
)
from qkv.errors import ConfigError
from qkv.model.config import Config, Size
from qkv.model.position.schemes import Position, PositionScheme, Sizes, angle_dtype


class _Stretch(Config):
    """How fast each pair turns, and how much longer turning makes it."""

    def amplitude(self) -> float:
        return 1.0


class NoScaling(_Stretch):
    """The speeds of the paper."""

    kind: Literal["none"] = "none"

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Radians per position of each pair, (width/2,)."""
        return frequencies(width, base, device, dtype)


class LinearScaling(_Stretch):
    """Every pair turns `factor` times slower."""

    kind: Literal["linear"] = "linear"
    factor: PositiveFloat

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return scale_linear(frequencies(width, base, device, dtype), self.factor)


class NtkScaling(_Stretch):
    """A larger base: slow pairs turn slower, fast ones hardly change."""

    kind: Literal["ntk"] = "ntk"
    factor: PositiveFloat

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return frequencies(width, ntk_base(base, self.factor, width), device, dtype)


class Llama3Scaling(_Stretch):
    """Llama 3's rule: only what turned fewer than `high` times in training turns slower."""

    kind: Literal["llama3"] = "llama3"
    factor: PositiveFloat
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0
    trained_length: Size

    @model_validator(mode="after")
    def _ordered(self) -> "Llama3Scaling":
        if self.low_freq_factor >= self.high_freq_factor:
            raise ValueError(
                f"low_freq_factor={self.low_freq_factor} must be below "
                f"high_freq_factor={self.high_freq_factor}"
            )
        return self

    def frequencies(
        self, base: float, width: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        plain = frequencies(width, base, device, dtype)
        return scale_llama3(
            plain, self.factor, self.low_freq_factor, self.high_freq_factor, self.trained_length
        )


class YarnScaling(_Stretch):
    """YaRN: what turned often in training stays, what hardly turned is slowed (Peng et al. 2023).

    Queries and keys also grow, by `length` or, if that is not given, by the paper's rule.
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
        plain = frequencies(width, base, device, dtype)
        return scale_yarn(
            plain, base, self.factor, self.beta_fast, self.beta_slow, self.trained_length
        )

    def amplitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1.0 else 0.1 * math.log(self.factor) + 1.0


Stretch = Annotated[
    NoScaling | LinearScaling | NtkScaling | Llama3Scaling | YarnScaling,
    Field(discriminator="kind"),
]


class Rope(PositionScheme):
    """`share` of each head's features turn, neighbours (`adjacent`) or halves paired."""

    kind: Literal["rope"] = "rope"
    base: PositiveFloat = 10_000.0
    interleaved: bool = False
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    scaling: Stretch = NoScaling()

    def rotated_width(self, room: Sizes) -> int:
        """How many features of a head turn."""
        return int(room.head_width * self.fraction)

    def fit(self, room: Sizes) -> None:
        if isinstance(self.scaling, YarnScaling) and self.base <= 1.0:
            raise ConfigError(f"base={self.base} turns all pairs alike; YaRN needs one above 1")
        turned = self.rotated_width(room)
        fewest = (
            4 if isinstance(self.scaling, NtkScaling) else 2
        )  # a base stretches between two pairs
        if turned < fewest or turned % 2:
            raise ConfigError(
                f"rotary positions turn pairs of features, but fraction={self.fraction} of "
                f"head_width={room.head_width} is {turned}; it must be an even number of "
                f"{fewest} or more"
            )

    def build(self, room: Sizes) -> Position:
        return RopePosition(self, self.rotated_width(room))


class RopePosition(Position):
    def __init__(self, choice: Rope, turned: int) -> None:
        super().__init__()
        self.config, self.turned = choice, turned

    def rope(self, positions: Tensor, dtype: torch.dtype) -> RopeRotation:
        c = self.config
        speeds = c.scaling.frequencies(c.base, self.turned, angle_dtype(dtype), positions.device)
        return rope_rotation(positions, speeds, c.interleaved, c.scaling.amplitude())
