"""One more token of one sequence, in as few operations as there are.

At batch 1 a small model spends its time between the products: each operation costs microseconds
whatever its size. For the commonest kind of decoder (pre-norm with root mean squares, rotary
positions, a gated feed-forward; Llama and its kin) a layer is about thirty operations here, where
the general way takes twice as many. The numbers are the same, and so is the cache.
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
from torch.nn.functional import scaled_dot_product_attention

from qkv.attention import KVCache, LayerCache, Mask, NoRope, RopeRotation
from qkv.attention.reference import scale_factor
from qkv.engine.optimized.fused import (
    FastRMSNorm,
    FusedGatedFeedForward,
    FusedQKVRopeAttention,
    PreNormBlock,
)
from qkv.engine.optimized.kernel_modules import (
    KernelLinear,
    KernelQuantizedLinear,
    activation_number,
)
from qkv.engine.optimized.linear import Plain
from qkv.engine.optimized.quantized import Int8
from qkv.kernels import Layer, Matrix, Norm, Shape, floats, inference_kernels
from qkv.model.attention import StepsHook
from qkv.model.position.rope import RopePosition
from qkv.model.stack import Block, Layers

# FOLDED engine/quick/stepped: One more token of one sequence, in one call of a compiled loop.
#
#   For the kind of decoder that has a short way (see `single`) all layers are computed by
#   `decode` of
#   `qkv.kernels`: the same numbers, added up in another order, and the same cache.

FIRST = 16  # keys; with fewer, torch's kernel turns a NaN query into zeros

Product = Plain | Int8


class DecodeStepLayers(Layers):
    """The layers of a decoder; a single token of a single sequence takes the short way."""

    first: ClassVar[int] = FIRST

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        if (
            cache is None
            or positions is not None
            or x.shape[:2] != (1, 1)
            or cache.length < self.first
            or type(cache.layers[0]) is not LayerCache
            or not mask.only_causal()
            or torch.is_grad_enabled()
            or any(tap.has_hooks for tap in self.taps)
        ):
            return super().forward(x, mask, positions, cache, memory, memory_mask)
        return self._one(x.view(-1), cache).view(1, 1, -1)

    @cached_property
    def lines(self) -> list[Line]:
        """What each layer is made of, at hand."""
        found = [line_of(block) for block in self.blocks()]
        return [line for line in found if line is not None]

    @cached_property
    def taps(self) -> list[StepsHook]:
        """Where somebody may want to see the steps of an attention."""
        return [line.attention.core.hook_point for line in self.lines]

    def _one(self, x: Tensor, cache: KVCache) -> Tensor:
        """x (D,) through all blocks and the last norm; its keys and values join the cache."""
        at = torch.tensor([cache.length], device=x.device)
        rotation = self.position.rope(at, x.dtype)
        for slot, line in zip(cache.layers, self.lines, strict=True):
            x = line.fed_forward(line.attended(x, slot, rotation))
        normed: Tensor = self.norm_out(x)
        return normed


@dataclass(frozen=True)
class Line:
    """One layer for one row: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    attention: FusedQKVRopeAttention
    project: Product
    mixed: Product
    norm: FastRMSNorm
    activation: nn.Module
    widen: Product
    narrow: Product
    wide_norm: FastRMSNorm

    def attended(self, x: Tensor, slot: LayerCache, rotation: RopeRotation | NoRope) -> Tensor:
        part = self.attention
        H, K, _ = part.heads
        asked, v = torch.split(_normed(self.norm, x, self.project), part.asked_and_values)
        turned = rotation.rotate(asked.view(H + K, -1))  # (H + K, E)
        k, v = slot.append(turned[H:].view(1, K, 1, -1), v.view(1, K, 1, -1))  # (1, K, S, E)
        q = turned[:H].view(1, H, 1, -1)
        seen = scaled_dot_product_attention(q, k, v, scale=part.core.scale, enable_gqa=H != K)
        return self.mixed.one_more(x, seen.view(-1))

    def fed_forward(self, x: Tensor) -> Tensor:
        gate, up = _normed(self.wide_norm, x, self.widen).chunk(2)
        return self.narrow.one_more(x, self.activation(gate).mul_(up))


def _normed(norm: FastRMSNorm, x: Tensor, product: Product) -> Tensor:
    """product(norm(x)); the size of x is a plain number, and joins the product last."""
    size = (float(torch.dot(x, x)) / len(x) + norm.eps) ** -0.5
    return product.one(x * norm.gain, size)


def fits(layers: Layers) -> bool:
    """Whether all parts are of the kinds that have a short way."""
    return (
        isinstance(layers.norm_in, nn.Identity)
        and isinstance(layers.widen, nn.Identity)
        and isinstance(layers.position, RopePosition)
        and len(layers.patterns) == 1
        and all(line_of(block) is not None for block in layers.blocks())
    )


def line_of(block: Block) -> Line | None:
    """The layer for one row, if its parts are of the kinds that have a short way."""
    attention, wide = block.attention, block.feed_forward
    norm, wide_norm = block.attention_in, block.feed_forward_in
    if not (
        isinstance(block, PreNormBlock)
        and isinstance(attention, FusedQKVRopeAttention)
        and attention.core.cap is None
        and attention.widths[1] == attention.widths[2]
        and isinstance(wide, FusedGatedFeedForward)
        and isinstance(norm, FastRMSNorm)
        and isinstance(wide_norm, FastRMSNorm)
    ):
        return None
    project, mixed, widen, narrow = attention.project, attention.output, wide.widen, wide.down
    assert isinstance(project, Product)
    assert isinstance(mixed, Product)
    assert isinstance(widen, Product)
    assert isinstance(narrow, Product)
    return Line(attention, project, mixed, norm, wide.activation, widen, narrow, wide_norm)


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
        for layer, slot in zip(own, cache.layers, strict=True):
            layer.keys, layer.values = slot.k.data_ptr(), slot.v.data_ptr()
        sized = Shape.from_buffer_copy(shape)
        sized.capacity = cache.layers[0].capacity
        return cls(own, sized, _tensors(cache), inference_kernels().room(shape))

    def holds(self, cache: KVCache) -> bool:
        """Whether the cache still has the tensors it had."""
        return all(map(operator.is_, self.tensors, _tensors(cache)))


class KernelDecodeStepLayers(DecodeStepLayers):
    """The layers of a decoder; a single token of a single sequence is one call."""

    first: ClassVar[int] = 0  # the loop gives NaN for NaN, however few the keys

    def _one(self, x: Tensor, cache: KVCache) -> Tensor:
        bound, position = self._bound(cache), cache.length
        if bound is None or position == bound.shape.capacity:
            return super()._one(x, cache)  # which says what is wrong
        x = x.clone()
        turns = self._turns(position)
        inference_kernels().decode(bound.layers, bound.shape, x, turns, position, bound.room)
        for slot in cache.layers:
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
        assert isinstance(position, RopePosition)
        heads, kv_heads, _ = line.attention.heads
        E = line.attention.widths[0] // heads
        return Shape(
            width=len(line.norm.gain), heads=heads, kv_heads=kv_heads, head_width=E,
            hidden=_matrix(line.widen).rows // 2, turned=position.turned,
            adjacent=position.config.interleaved, activation=activation_number(line.activation),
            scale=scale_factor(E, line.attention.core.scale), last=_norm(self.norm_out),
        )  # fmt: skip

    def _turns(self, position: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of all positions up to this one, and some more: (positions, R) each."""
        known: RopeRotation | None = self.__dict__.get("table")
        if known is None or position >= len(known.cos):
            places = torch.arange((position // TABLE + 1) * TABLE)
            made = self.position.rope(places, torch.float32)
            assert isinstance(made, RopeRotation)
            known = self.__dict__["table"] = RopeRotation(
                floats(made.cos.float()), floats(made.sin.float()), made.interleaved
            )
        return known.cos, known.sin


def steps(layers: Layers) -> bool:
    """Whether the loop knows all that these layers, which have a short way, are made of."""
    return isinstance(layers.norm_out, FastRMSNorm) and all(
        line is not None and activation_number(line.activation) is not None
        for line in map(line_of, layers.blocks())
    )


def _tensors(cache: KVCache) -> list[Tensor]:
    return [t for slot in cache.layers for t in (slot.k, slot.v)]


def _fits(cache: KVCache, shape: Shape, layers: int) -> bool:
    """Whether all keys and values of one sequence lie there in pieces of one size."""
    room = (1, shape.kv_heads, cache.layers[0].capacity, shape.head_width)
    return len(cache.layers) == layers and all(
        t.shape == room and t.dtype == torch.float32 and t.is_contiguous() for t in _tensors(cache)
    )


def _layer(line: Line) -> Layer:
    return Layer(
        attention=_norm(line.norm), feed_forward=_norm(line.wide_norm),
        project=_matrix(line.project), output=_matrix(line.mixed),
        widen=_matrix(line.widen), narrow=_matrix(line.narrow),
    )  # fmt: skip


def _norm(norm: nn.Module) -> Norm:
    assert isinstance(norm, FastRMSNorm)
    return Norm.of(norm.gain, norm.eps)


def _matrix(product: Product) -> Matrix:
    assert isinstance(product, KernelLinear | KernelQuantizedLinear)
    return product.matrix
