"""Less memory for more time: a layer's inner values are computed again in the backward pass."""

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from qkv.model.stack import Layers


def recompute(model: nn.Module) -> None:
    """Keep only what goes into each layer (Chen et al. 2016); the numbers stay the same."""
    for layers in (module for module in model.modules() if isinstance(module, Layers)):
        for block in layers.blocks():
            if "forward" in vars(block):  # layers may share one, and a copy has it already
                continue
            # A partial is copied along with its block; a closure would go on calling this one.
            again = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = again  # type: ignore[method-assign]
