"""Where a word stands: one file a scheme."""

from typing import Annotated

from pydantic import Field

from qkv.model.position.rope import (
    LinearStretch,
    NtkStretch,
    Rotary,
    TurnsStretch,
    Unstretched,
    WavelengthStretch,
)
from qkv.model.position.schemes import (
    AlibiSlopes,
    Learned,
    NoPosition,
    Position,
    RelativeBuckets,
    Room,
    Sinusoidal,
)

PositionChoice = Annotated[
    NoPosition | Sinusoidal | Learned | Rotary | AlibiSlopes | RelativeBuckets,
    Field(discriminator="kind"),
]

__all__ = [
    "AlibiSlopes",
    "Learned",
    "LinearStretch",
    "NoPosition",
    "NtkStretch",
    "Position",
    "PositionChoice",
    "RelativeBuckets",
    "Room",
    "Rotary",
    "Sinusoidal",
    "TurnsStretch",
    "Unstretched",
    "WavelengthStretch",
]
