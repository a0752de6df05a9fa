"""Where a word stands: one file a scheme."""

from typing import Annotated

from pydantic import Field

from qkv.model.position.rope import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    NtkScaling,
    Rope,
    YarnScaling,
)
from qkv.model.position.schemes import (
    Alibi,
    Learned,
    NoPosition,
    Position,
    RelativeBuckets,
    Sinusoidal,
    Sizes,
)

PositionChoice = Annotated[
    NoPosition | Sinusoidal | Learned | Rope | Alibi | RelativeBuckets,
    Field(discriminator="kind"),
]

__all__ = [
    "Alibi",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "NoPosition",
    "NoScaling",
    "NtkScaling",
    "Position",
    "PositionChoice",
    "RelativeBuckets",
    "Rope",
    "Sinusoidal",
    "Sizes",
    "YarnScaling",
]
