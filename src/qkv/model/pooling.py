"""From a vector for each position to one vector for the text, looking at real positions only."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from qkv.model.choice import Choice


class Mean(Choice):
    """The average of all positions."""

    kind: Literal["mean"] = "mean"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """states (B, T, D), lengths (B,) -> (B, D); zeros for an empty text."""
        real = _real(states, lengths)
        return (states * real).sum(dim=1) / lengths.clamp(min=1)[:, None]  # (B, D)


class First(Choice):
    """The first position, where BERT keeps its summary."""

    kind: Literal["first"] = "first"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        return states[:, 0] * (lengths > 0)[:, None]  # (B, D)


class Last(Choice):
    """The last real position: the only one of a decoder that has seen the whole text."""

    kind: Literal["last"] = "last"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        rows = torch.arange(len(states), device=states.device)
        return states[rows, lengths.clamp(min=1) - 1] * (lengths > 0)[:, None]  # (B, D)


class Max(Choice):
    """The largest value of each feature."""

    kind: Literal["max"] = "max"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        hidden = states.masked_fill(~_real(states, lengths), -torch.inf)
        return hidden.amax(dim=1).masked_fill((lengths == 0)[:, None], 0.0)  # (B, D)


Pooling = Annotated[Mean | First | Last | Max, Field(discriminator="kind")]


def _real(states: Tensor, lengths: Tensor) -> Tensor:
    places = torch.arange(states.shape[1], device=states.device)
    return (places < lengths[:, None])[..., None]  # (B, T, 1)
