"""A module of another class with the same tensors and other parts."""

from collections.abc import Callable

from torch import nn


def same_weights(
    part: nn.Module, kind: type[nn.Module], twin_of: Callable[[nn.Module], nn.Module]
) -> nn.Module:
    """The part as that class; its tensors and settings are shared, its own parts are twins."""
    copy = kind.__new__(kind)
    copy.__dict__ = dict(part.__dict__)
    copy._modules = {
        name: None if child is None else twin_of(child) for name, child in part._modules.items()
    }
    return copy
