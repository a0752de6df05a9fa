"""Blocks on top of each other, with the positions they share: an encoder or a decoder."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from qkv.attention import FULL_MASK, NO_CACHE, KVCache, Mask
from qkv.errors import CacheError, ConfigError, ShapeError
from qkv.model.attention import AttentionChoice
from qkv.model.config import Config, Count, Fraction, Size
from qkv.model.feed_forward import FeedForwardChoice
from qkv.model.norm import (
    ArrangementChoice,
    Dropout,
    LayerNorm,
    Norm,
    PassThrough,
    PreNorm,
    SublayerConnection,
    build_norm,
    norm_parameters,
)
from qkv.model.position import Position, PositionChoice, Rope, Sizes
from qkv.model.view import View

# FOLDED model/block: One layer of every family: attention, in some decoders cross attention,
#   and feed-forward.
# FOLDED model/local: Layers that see only what is near, among or instead of layers that see
#   everything.


class Block(nn.Module):
    """Attention mixes positions; the feed-forward changes each one by itself."""

    def __init__(
        self,
        width: int,
        attention: AttentionChoice,
        feed_forward: FeedForwardChoice,
        norm: Norm,
        residual: ArrangementChoice,
        dropout: float,
        cross: bool,
        first: bool = False,
    ) -> None:
        super().__init__()
        around = residual.first_attention if first else residual.attention
        joint = around(norm, width, dropout)
        self.attention_in, self.attention_join, self.attention_out = joint
        self.attention = attention.build(width)

        joint = residual.cross(norm, width, dropout) if cross else _around_nothing()
        self.cross_in, self.cross_join, self.cross_out = joint
        self.cross = attention.build(width, cross=True) if cross else NoCrossAttention()

        joint = residual.feed_forward(norm, width, dropout)
        self.feed_forward_in, self.feed_forward_join, self.feed_forward_out = joint
        self.feed_forward = feed_forward.build(width, dropout)

    def forward(self, x: Tensor, view: View) -> Tensor:
        mixed = self.attention(self.attention_in(x), view)
        x = self.attention_out(self.attention_join(x, mixed))
        read = self.cross(self.cross_in(x), view)
        x = self.cross_out(self.cross_join(x, read))
        changed = self.feed_forward(self.feed_forward_in(x))
        return self.feed_forward_out(self.feed_forward_join(x, changed))


class ParallelBlock(Block):
    """Attention and feed-forward side by side: both read what comes in."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        mixed = self.attention(self.attention_in(x), view)
        changed = self.feed_forward(self.feed_forward_in(x))
        x = self.attention_out(self.attention_join(x, mixed))
        return self.feed_forward_out(self.feed_forward_join(x, changed))


class NoCrossAttention(nn.Module):
    """The cross attention of a block that has none."""

    def forward(self, x: Tensor, view: View) -> None:
        return None


def _around_nothing() -> SublayerConnection:
    return SublayerConnection(nn.Identity(), PassThrough(), nn.Identity())


class AttentionPattern(NamedTuple):
    """One way to look around: how far, and how positions turn what is compared."""

    window: Mask
    position: Position


class LocalAttention(Config):
    """A position sees itself, `before` positions before it and `after` positions after it.

    layers: those it holds for, all of them if not given. position: how these layers turn queries
    and keys, if otherwise than the rest.
    """

    before: Count
    after: Count = 0
    layers: Annotated[tuple[Count, ...], Field(strict=False)] | None = None  # JSON has lists
    position: Rope | None = None

    def fit(self, layers: int, room: Sizes) -> None:
        if self.layers == ():
            raise ConfigError("local layers are named but there is none; leave `local` out")
        for layer in self.layers or ():
            if layer >= layers:
                raise ConfigError(f"local layer {layer} does not exist; there are {layers}")
        if self.position is not None:
            self.position.fit(room)

    def applies_to(self, layer: int) -> bool:
        return self.layers is None or layer in self.layers

    def pattern(self, usual: Position, room: Sizes) -> AttentionPattern:
        turning = usual if self.position is None else self.position.build(room)
        return AttentionPattern(Mask.window(self.before, self.after), turning)


class Stack(Config):
    """The shape of an encoder or a decoder.

    unique_layers: so many blocks have weights of their own and share out the layers, neighbours
    together; embedding_width: embeddings are narrower and widened by a matrix (both from
    Lan et al. 2020).
    """

    layers: Size
    unique_layers: Size | None = None
    width: Size
    embedding_width: Size | None = None
    attention: AttentionChoice
    feed_forward: FeedForwardChoice
    position: PositionChoice
    norm: Norm = LayerNorm()
    norm_placement: ArrangementChoice = PreNorm()
    input_norm: Norm | None = None
    local: LocalAttention | None = None
    dropout: Fraction = 0.0

    @model_validator(mode="after")
    def _parts_fit(self) -> "Stack":
        self.attention.fit(self.width)
        self.position.fit(self.sizes(length=1))
        if self.layers % self.blocks:
            raise ValueError(f"unique_layers={self.unique_layers} must divide layers={self.layers}")
        if self.local is not None:
            self.local.fit(self.layers, self.sizes(length=1))
        return self

    @property
    def blocks(self) -> int:
        """Blocks with weights of their own."""
        return self.unique_layers or self.layers

    @property
    def input_width(self) -> int:
        """The width of the embeddings it reads."""
        return self.embedding_width or self.width

    def sizes(self, length: int) -> Sizes:
        heads = self.attention
        return Sizes(self.input_width, heads.heads, heads.key_width(self.width), length)

    def build(self, length: int, cross: bool = False) -> "Layers":
        return Layers(self, length, cross)

    def parameters(self, length: int, cross: bool = False) -> int:
        attention = self.attention.parameters(self.width) * (2 if cross else 1)
        block = attention + self.feed_forward.parameters(self.width)
        norms = self.norm_placement.norm_count(self.blocks, cross) * self.norm.parameters(
            self.width
        )
        ends = norm_parameters(self.input_norm, self.input_width) + self.position.parameters(
            self.sizes(length)
        )
        if self.embedding_width is not None:
            ends += (self.embedding_width + 1) * self.width
        return self.blocks * block + norms + ends

    def empty_cache(
        self,
        batch: int,
        capacity: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> KVCache:
        return KVCache.empty(
            layers=self.layers,
            batch=batch,
            kv_heads=self.attention.num_kv_heads,
            capacity=capacity,
            head_width=self.attention.key_width(self.width),
            value_width=self.attention.value_head_width(self.width),
            device=device,
            dtype=dtype,
        )


class Layers(nn.Module):
    """The blocks of a stack, named 0, 1, 2, …, so that paths read `decoder.0.attention`."""

    def __init__(self, stack: Stack, length: int, cross: bool) -> None:
        super().__init__()
        s = stack
        self.position = s.position.build(s.sizes(length))
        self.norm_in = build_norm(s.input_norm, s.input_width)
        self.dropout = Dropout(s.dropout)
        self.widen = (
            nn.Identity() if s.embedding_width is None else nn.Linear(s.input_width, s.width)
        )
        kind = ParallelBlock if s.norm_placement.parallel else Block
        for i in range(s.blocks):
            block = kind(
                s.width,
                s.attention,
                s.feed_forward,
                s.norm,
                s.norm_placement,
                s.dropout,
                cross,
                i == 0,
            )
            self.add_module(str(i), block)
        self.norm_out = s.norm_placement.final_norm(s.norm, s.width)
        self.count = s.layers
        self.block_of = [
            i * s.blocks // s.layers for i in range(s.layers)
        ]  # the block of each layer
        self.patterns = [AttentionPattern(FULL_MASK, self.position)]  # to look around
        self.pattern_of = [0] * s.layers
        if s.local is not None:
            self.patterns.append(s.local.pattern(self.position, s.sizes(length)))
            self.pattern_of = [int(s.local.applies_to(i)) for i in range(s.layers)]

    def blocks(self) -> Iterator[Block]:
        """The block of each layer; where layers share one, it comes again."""
        for i in self.block_of:
            block = self._modules[str(i)]
            assert isinstance(block, Block)
            yield block

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Mask | None = None,
    ) -> Tensor:
        """x (B, T, D) through all blocks; with a cache, x follows what the cache holds."""
        if cache is not None and len(cache.layers) != self.count:
            raise CacheError(f"the cache has {len(cache.layers)} layers, the model {self.count}")
        positions = self._positions(x, positions, 0 if cache is None else cache.length)
        x = self.widen(self.dropout(self.norm_in(self.position.embed(x, positions))))
        views = [
            View(  # named in full: torch.compile cannot trace a default that is an object
                mask=mask & way.window & self.position.mask(x.dtype),
                rope=way.position.rope(positions, x.dtype),
                cache=NO_CACHE,
                cross_cache=NO_CACHE,
                memory=memory,
                memory_mask=FULL_MASK if memory_mask is None else memory_mask,
            )
            for way in self.patterns
        ]
        for i, block in enumerate(self.blocks()):
            x = block(x, views[self.pattern_of[i]].of_layer(i, cache))
        return self.norm_out(x)

    def _positions(self, x: Tensor, given: Tensor | None, start: int) -> Tensor:
        stop = start + x.shape[1]
        if given is not None:
            if given.shape[-1] != x.shape[1]:
                raise ShapeError(f"{given.shape[-1]} positions are given for {x.shape[1]} tokens")
            return given
        if self.position.limit is not None and stop > self.position.limit:
            raise ShapeError(
                f"the text reaches position {stop} but the model reads at most "
                f"{self.position.limit}; shorten it"
            )
        return torch.arange(start, stop, device=x.device)
