"""A model while it answers: nothing is dropped at random and no gradient is kept."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """Inside, the model is at rest and torch keeps nothing for a backward pass."""
    with at_rest(model), torch.inference_mode():
        yield


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode; afterwards every part is in the mode it was in."""
    learning = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in learning:
            part.training = True
