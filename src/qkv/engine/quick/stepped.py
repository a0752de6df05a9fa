"""One more token of one sequence, in one call of a compiled loop.

For the kind of decoder that has a short way (see `single`) all layers are computed by `decode` of
`qkv.native`: the same numbers, added up in another order, and the same cache.
"""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from qkv.attention import KVCache, Rotation
from qkv.attention.reference import scale_factor
from qkv.engine.quick.looped import LoopedInt8, LoopedPlain, activation_number
from qkv.engine.quick.norm import QuickRMSNorm
from qkv.engine.quick.single import Line, Product, SingleLayers, line_of
from qkv.model.position.rotary import Turning
from qkv.model.stack import Layers
from qkv.native import Layer, Matrix, Norm, Shape, floats, loops

TABLE = 256  # positions whose turns are computed at a time


@dataclass(frozen=True)
class Bound:
    """What the loop is told of one sequence: the layers with its keys and values, and room."""

    layers: ctypes.Array[Layer]
    shape: Shape
    tensors: list[Tensor]
    room: Tensor

    @classmethod
    def of(cls, cache: KVCache, layers: ctypes.Array[Layer], shape: Shape) -> Bound:
        own = type(layers).from_buffer_copy(layers)
        for layer, slot in zip(own, cache.slots, strict=True):
            layer.keys, layer.values = slot.k.data_ptr(), slot.v.data_ptr()
        sized = Shape.from_buffer_copy(shape)
        sized.capacity = cache.slots[0].capacity
        return cls(own, sized, _tensors(cache), loops().room(shape))

    def holds(self, cache: KVCache) -> bool:
        """Whether the cache still has the tensors it had."""
        return all(map(operator.is_, self.tensors, _tensors(cache)))


class SteppedLayers(SingleLayers):
    """The layers of a decoder; a single token of a single sequence is one call."""

    first: ClassVar[int] = 0  # the loop gives NaN for NaN, however few the keys

    def _one(self, x: Tensor, cache: KVCache) -> Tensor:
        bound, position = self._bound(cache), cache.length
        if bound is None or position == bound.shape.capacity:
            return super()._one(x, cache)  # which says what is wrong
        x = x.clone()
        turns = self._turns(position)
        loops().decode(bound.layers, bound.shape, x, turns, position, bound.room)
        for slot in cache.slots:
            slot.length += 1
        return x

    def _bound(self, cache: KVCache) -> Bound | None:
        """The layers with the room of this cache, each cache by itself as many may be at work;
        none if it does not fit.
        """
        bound = self.known.get(cache)
        if bound is None or not bound.holds(cache):
            if not _fits(cache, self.shape, len(self.lines)):
                return None
            bound = self.known[cache] = Bound.of(cache, self.compiled, self.shape)
        return bound

    @cached_property
    def known(self) -> WeakKeyDictionary[KVCache, Bound]:
        """The caches in use."""
        return WeakKeyDictionary()

    @cached_property
    def compiled(self) -> ctypes.Array[Layer]:
        """What each layer is made of, for the loop; `lines` keeps the tensors."""
        return (Layer * len(self.lines))(*map(_layer, self.lines))

    @cached_property
    def shape(self) -> Shape:
        line, position = self.lines[0], self.position
        assert isinstance(position, Turning)
        heads, kv_heads, _ = line.attention.heads
        E = line.attention.widths[0] // heads
        return Shape(
            width=len(line.norm.gain), heads=heads, kv_heads=kv_heads, head_width=E,
            hidden=_matrix(line.widen).rows // 2, turned=position.turned,
            adjacent=position.choice.adjacent, activation=activation_number(line.activation),
            scale=scale_factor(E, line.attention.mix.scale), last=_norm(self.norm_out),
        )  # fmt: skip

    def _turns(self, position: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all positions up to this one, and some more: (positions, R) each."""
        known: Rotation | None = self.__dict__.get("table")
        if known is None or position >= len(known.cos):
            places = torch.arange((position // TABLE + 1) * TABLE)
            made = self.position.rotation(places, torch.float32)
            assert isinstance(made, Rotation)
            known = self.__dict__["table"] = Rotation(
                floats(made.cos.float()), floats(made.sin.float()), made.adjacent
            )
        return known.cos, known.sin


def steps(layers: Layers) -> bool:
    """Whether the loop knows all that these layers, which have a short way, are made of."""
    return isinstance(layers.norm_out, QuickRMSNorm) and all(
        line is not None and activation_number(line.activation) is not None
        for line in map(line_of, layers.blocks())
    )


def _tensors(cache: KVCache) -> list[Tensor]:
    return [t for slot in cache.slots for t in (slot.k, slot.v)]


def _fits(cache: KVCache, shape: Shape, layers: int) -> bool:
    """Whether all keys and values of one sequence lie there in pieces of one size."""
    room = (1, shape.kv_heads, cache.slots[0].capacity, shape.head_width)
    return len(cache.slots) == layers and all(
        t.shape == room and t.dtype == torch.float32 and t.is_contiguous() for t in _tensors(cache)
    )


def _layer(line: Line) -> Layer:
    return Layer(
        attention=_norm(line.norm), feed_forward=_norm(line.wide_norm),
        project=_matrix(line.project), output=_matrix(line.mixed),
        widen=_matrix(line.widen), narrow=_matrix(line.narrow),
    )  # fmt: skip


def _norm(norm: nn.Module) -> Norm:
    assert isinstance(norm, QuickRMSNorm)
    return Norm.of(norm.gain, norm.eps)


def _matrix(product: Product) -> Matrix:
    assert isinstance(product, LoopedPlain | LoopedInt8)
    return product.matrix
