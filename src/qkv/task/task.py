"""What a model is trained for: the only place that knows the meaning of a batch."""

from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn


class Batch(Protocol):
    """Tensors for one step."""

    @property
    def tokens(self) -> int:
        """Real tokens the model reads."""
        ...

    @property
    def targets(self) -> int:
        """Real targets it is judged by; known before anything is computed."""
        ...

    def to(self, device: torch.device) -> "Batch": ...


M = TypeVar("M", bound=nn.Module, contravariant=True)
B = TypeVar("B", bound=Batch, contravariant=True)


class Task(Protocol, Generic[M, B]):
    """How well a model does on a batch."""

    def loss(self, model: M, batch: B) -> Tensor:
        """The loss summed over all real targets; whoever adds up divides once, by their number."""
        ...
