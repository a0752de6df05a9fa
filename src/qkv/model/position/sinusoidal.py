"""Waves added to the embeddings (Vaswani et al. 2017)."""

from typing import Literal

from pydantic import PositiveFloat
from torch import Tensor

from qkv.attention import sinusoids
from qkv.model.position.scheme import Position, Room, Scheme, exact


class Sinusoidal(Scheme):
    """Fixed sines and cosines; `offset` is the number of the first position."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10_000.0
    interleaved: bool = True
    endpoint: bool = False
    offset: int = 0

    def build(self, room: Room) -> Position:
        return Waves(self)


class Waves(Position):
    def __init__(self, choice: Sinusoidal) -> None:
        super().__init__()
        self.choice = choice

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        c, width, dtype = self.choice, x.shape[-1], exact(x.dtype)
        places = positions + c.offset
        return x + sinusoids(places, width, c.base, c.interleaved, c.endpoint, dtype).to(x.dtype)
