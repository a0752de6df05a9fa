"""Which operation a module of ours computes, and with which of its parameters."""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from qkv.errors import UsageError
from qkv.explain.trace.operation import (
    Bent,
    FactoredToHeads,
    LayerNormed,
    Linear,
    Operation,
    RootMeanNormed,
    SlicesToHeads,
    Times,
    ToHeads,
    Unit,
)
from qkv.model import projection
from qkv.model.embedding import Times as TimesModule
from qkv.model.feed_forward import SquaredReLU
from qkv.model.norm import RMSNormAroundOne
from qkv.model.output import Unit as UnitModule


class Does(NamedTuple):
    """An operation on x and these parameters."""

    operation: Operation
    parameters: tuple[str, ...] = ()


def does(module: nn.Module) -> Does:
    """What the module computes; a UsageError if it is none of ours."""
    if isinstance(module, nn.GELU):
        return Does(Bent("gelu_tanh" if module.approximate == "tanh" else "gelu"))
    for kind, say in _SAYINGS.items():
        if isinstance(module, kind):
            return say(module)
    raise cannot_open(module)


def cannot_open(module: nn.Module) -> UsageError:
    """What is said of a part that is none of ours."""
    return UsageError(
        f"a {type(module).__name__} cannot be opened up; trace the model as it was trained, "
        "not one made for 8 bits"
    )


def same(module: nn.Module) -> bool:
    """Whether it passes on what it gets."""
    return isinstance(module, nn.Identity)


def _linear(module: nn.Linear) -> Does:
    biased = module.bias is not None
    return Does(Linear(biased), _named(module))


def _to_heads(module: projection.ToHeads) -> Does:
    return Does(ToHeads(module.bias is not None, module.heads), _named(module))


def _layer_norm(module: nn.LayerNorm) -> Does:
    return Does(LayerNormed(module.eps, module.bias is not None), _named(module))


def _rms_norm(module: nn.RMSNorm) -> Does:
    around_one = isinstance(module, RMSNormAroundOne)
    assert module.eps is not None
    return Does(RootMeanNormed(module.eps, around_one), ("weight",))


def _named(module: nn.Module) -> tuple[str, ...]:
    return ("weight", "bias") if module.bias is not None else ("weight",)


# More special kinds before those they are made from.
_SAYINGS: dict[type[nn.Module], Callable[..., Does]] = {
    projection.ToHeads: _to_heads,
    projection.SlicesToHeads: lambda module: Does(SlicesToHeads(), ("weight",)),
    projection.FactoredToHeads: lambda module: Does(FactoredToHeads(module.heads), ("down", "up")),
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.ReLU: lambda module: Does(Bent("relu")),
    nn.SiLU: lambda module: Does(Bent("silu")),
    nn.Tanh: lambda module: Does(Bent("tanh")),
    SquaredReLU: lambda module: Does(Bent("relu2")),
    TimesModule: lambda module: Does(Times(module.factor)),
    UnitModule: lambda module: Does(Unit()),
}
