"""What every position scheme answers, most of it with "nothing".

What to add to the embeddings, how to turn queries and keys, and what to add to the scores.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from qkv.attention import SEE_ALL, UNTURNED, Mask, Rotation, Unturned
from qkv.model.choice import Choice


class Room(NamedTuple):
    """The sizes a scheme is built for."""

    width: int
    heads: int
    head_width: int
    length: int


class Position(nn.Module):
    """No position at all; each scheme changes one of the three answers."""

    limit: int | None = None  # the most positions there are vectors for

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, D) with its positions (T,) or (B, T) in it."""
        return x

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | Unturned:
        """How queries and keys at these positions are turned."""
        return UNTURNED

    def mask(self, dtype: torch.dtype) -> Mask:
        """What is added to the scores."""
        return SEE_ALL


class Scheme(Choice):
    """The choice of a scheme: it builds the module and counts what that will learn."""

    def fit(self, room: Room) -> None:
        """Raise a ConfigError if the scheme cannot be built for these sizes."""

    def build(self, room: Room) -> Position:
        return Position()

    def parameters(self, room: Room) -> int:
        return 0


class NoPosition(Scheme):
    """Word order is not seen, except through a causal mask."""

    kind: Literal["none"] = "none"


def exact(dtype: torch.dtype) -> torch.dtype:
    """Waves are computed in float32 at least, whatever the model computes in."""
    return torch.promote_types(dtype, torch.float32)
