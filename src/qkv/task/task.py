"""What the loop knows of a job: batches that say how large they are, and a loss for each."""

from typing import Any, Protocol, Self

import torch
from torch import Tensor


class Batch(Protocol):
    """Tensors for one step, or for a part of one."""

    @property
    def tokens(self) -> int:
        """Real tokens the model reads."""
        ...

    @property
    def targets(self) -> int:
        """Real targets it is judged by: what its summed loss is divided by."""
        ...

    def to(self, device: torch.device) -> Self: ...


class Task(Protocol):
    """What a model is for."""

    def loss(self, model: Any, batch: Any) -> Tensor:
        """The loss of all targets of the batch, added up."""
        ...
