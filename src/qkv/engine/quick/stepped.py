"""One more token of one sequence, in one call of a compiled loop.

For the kind of decoder that has a short way (see `single`) all layers are computed by `decode` of
`qkv.native`: the same numbers, added up in another order, and the same cache.
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from qkv.attention import KVCache, Rotation, Slot
from qkv.attention.reference import scale_factor
from qkv.engine.quick.looped import LoopedInt8, LoopedPlain, activation_number
from qkv.engine.quick.single import Line, Product, SingleLayers, line_of
from qkv.model.position.rotary import Turning
from qkv.model.stack import Layers
from qkv.native import Layer, Matrix, Shape, loops

TABLE = 256  # positions whose turns are computed at a time


class SteppedLayers(SingleLayers):
    """The layers of a decoder; a single token of a single sequence is one call."""

    first: ClassVar[int] = 0  # the loop gives NaN for NaN, however few the keys

    def _one(self, x: Tensor, cache: KVCache) -> Tensor:
        position, slots, s = cache.length, cache.slots, self.shape
        room = (1, s.kv_heads, slots[0].capacity, s.head_width)
        if len(slots) != len(self.lines) or not all(_holds(slot, room, position) for slot in slots):
            return super()._one(x, cache)  # which says what is wrong
        layers = type(self.compiled).from_buffer_copy(self.compiled)  # others may be at work
        for layer, slot in zip(layers, slots, strict=True):
            layer.keys, layer.values = slot.k.data_ptr(), slot.v.data_ptr()
        shape = Shape.from_buffer_copy(s)
        shape.capacity = slots[0].capacity
        x = x.clone()
        loops().decode(layers, shape, x, self._turns(position), position)
        for slot in slots:
            slot.length += 1
        return x

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
            scale=scale_factor(E, line.attention.mix.scale),
        )  # fmt: skip

    def _turns(self, position: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of a position, (R,) each."""
        known: Rotation | None = self.__dict__.get("table")
        if known is None or position >= len(known.cos):
            places = torch.arange((position // TABLE + 1) * TABLE)
            made = self.position.rotation(places, torch.float32)
            assert isinstance(made, Rotation)
            known = self.__dict__["table"] = Rotation(
                made.cos.float(), made.sin.float(), made.adjacent
            )
        return known.cos[position], known.sin[position]


def steps(layers: Layers) -> bool:
    """Whether the loop knows all that these layers, which have a short way, are made of."""
    return all(
        line is not None and activation_number(line.activation) is not None
        for line in map(line_of, layers.blocks())
    )


def _holds(slot: Slot, room: tuple[int, ...], position: int) -> bool:
    """Whether keys and values of that room lie there in one piece, with a place for one more."""
    return (
        slot.length == position < room[2]
        and slot.k.shape == slot.v.shape == room
        and slot.k.dtype == slot.v.dtype == torch.float32
        and slot.k.is_contiguous()
        and slot.v.is_contiguous()
    )


def _layer(line: Line) -> Layer:
    return Layer(
        attention_gain=line.norm.gain.data_ptr(), attention_eps=line.norm.eps,
        feed_forward_gain=line.wide_norm.gain.data_ptr(), feed_forward_eps=line.wide_norm.eps,
        project=_matrix(line.project), output=_matrix(line.mixed),
        widen=_matrix(line.widen), narrow=_matrix(line.narrow),
    )  # fmt: skip


def _matrix(product: Product) -> Matrix:
    assert isinstance(product, LoopedPlain | LoopedInt8)
    return product.matrix
