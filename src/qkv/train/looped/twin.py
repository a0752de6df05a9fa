"""A twin of a model that learns the same sooner: its layers go through compiled passes.

It has the same weights, tensor for tensor and under the same names, so whatever is learnt by one
is learnt by both. Parts that the passes do not know are the model's own kind.
"""

from typing import TypeVar

from torch import nn

from qkv.engine.quick.same_weights import same_weights
from qkv.model import Layers, Model
from qkv.model.attention import Attention
from qkv.model.dropout import Dropout
from qkv.model.feed_forward import FeedForward
from qkv.model.output import OwnScores, TiedScores
from qkv.model.residual import Add
from qkv.native.learning import passes
from qkv.train.looped.attention import LOOPED as ATTENTIONS
from qkv.train.looped.layers import LoopedLayers
from qkv.train.looped.rows import (
    LoopedAdd,
    LoopedDropout,
    LoopedFeedForward,
    LoopedLinear,
    LoopedNorm,
)
from qkv.train.looped.scores import LoopedOwnScores, LoopedTiedScores

Kind = TypeVar("Kind", bound=Model)

LOOPED: dict[type[nn.Module], type[nn.Module]] = {
    Add: LoopedAdd,
    Dropout: LoopedDropout,
    OwnScores: LoopedOwnScores,
    TiedScores: LoopedTiedScores,
    nn.LayerNorm: LoopedNorm,
    nn.Linear: LoopedLinear,
}


def looped(model: Kind) -> Kind:
    """The twin; the passes are compiled now if they never were."""
    passes()
    twin = _copy(model, {})
    assert isinstance(twin, type(model))
    return twin


def _copy(part: nn.Module, made: dict[nn.Module, nn.Module], known: bool = True) -> nn.Module:
    """The part with the twins of its own parts; tensors are shared. A part that stands at two
    places has one twin.
    """
    if part not in made:
        kind = _kind(part, known)
        known = known and not (isinstance(part, Layers) and kind is type(part))
        made[part] = same_weights(part, kind, lambda child: _copy(child, made, known))
    return made[part]


def _kind(part: nn.Module, known: bool) -> type[nn.Module]:
    """The class of the part's twin. Attention needs a stack around it that is looped too."""
    if isinstance(part, Layers):
        return LoopedLayers if LoopedLayers.fits(part) else type(part)
    if isinstance(part, Attention):
        return ATTENTIONS.get(type(part), type(part)) if known else type(part)
    if isinstance(part, FeedForward):
        return LoopedFeedForward if LoopedFeedForward.fits(part) else type(part)
    return LOOPED.get(type(part), type(part))
