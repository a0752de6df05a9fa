"""Where a word stands: one file a scheme."""

from typing import Annotated

from pydantic import Field

from qkv.model.position.learned import Learned
from qkv.model.position.relative import AlibiSlopes, RelativeBuckets
from qkv.model.position.rotary import (
    LinearStretch,
    NtkStretch,
    Rotary,
    TurnsStretch,
    Unstretched,
    WavelengthStretch,
)
from qkv.model.position.scheme import NoPosition, Position, Room
from qkv.model.position.sinusoidal import Sinusoidal

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
