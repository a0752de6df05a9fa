"""A trained vector for each position, added to the embeddings."""

from typing import Literal

import torch
from torch import Tensor, nn

from qkv.model.choice import Count
from qkv.model.position.scheme import Position, Room, Scheme


class Learned(Scheme):
    """One row a position; the first `offset` rows are kept but never used."""

    kind: Literal["learned"] = "learned"
    offset: Count = 0

    def build(self, room: Room) -> Position:
        return PositionTable(room.length, room.width, self.offset)

    def parameters(self, room: Room) -> int:
        return (room.length + self.offset) * room.width


class PositionTable(Position):
    def __init__(self, length: int, width: int, offset: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length + offset, width))
        self.limit, self.offset = length, offset

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.weight[positions + self.offset]
