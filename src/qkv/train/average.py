"""A running mean of the weights, which often does better than the last of them (Polyak 1992)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The mean of a model's weights so far, the newest counting most.

    With decay d, the weights before count d of the mean; at the start less, so that the fresh
    weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: t.detach().clone() for name, t in _learned(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after `step`, counted from 1."""
        share = 1.0 - min(self.decay, (1 + step) / (10 + step))
        means, newest = list(self.weights.values()), list(_learned(model).values())
        torch._foreach_lerp_(means, newest, share)

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """The model has the mean as its weights for a while."""
        newest = {name: t.detach().clone() for name, t in _learned(model).items()}
        _put(model, self.weights)
        try:
            yield
        finally:
            _put(model, newest)


def _learned(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters())


@torch.no_grad()
def _put(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
