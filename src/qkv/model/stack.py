"""A stack of layers: an encoder or a decoder without its embedding and output."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from qkv.attention import FULL_MASK, NO_CACHE, KVCache, Mask
from qkv.errors import CacheError, ConfigError, ShapeError
from qkv.model.attention import AttentionConfig
from qkv.model.config import Config, Count, Fraction, Size
from qkv.model.feed_forward import FeedForwardConfig
from qkv.model.norm import (
    Dropout,
    LayerNorm,
    NormConfig,
    NormPlacement,
    PassThrough,
    PreNorm,
    SublayerConnection,
    build_norm,
    norm_parameters,
)
from qkv.model.position import Position, PositionConfig, Rope, Sizes
from qkv.model.view import View


class Block(nn.Module):
    """One layer: attention, in some decoders cross attention, and the feed-forward.

    Attention mixes positions; the feed-forward changes each one by itself.
    """

    def __init__(self, stack: "Stack", cross: bool, first: bool = False) -> None:
        super().__init__()
        width = stack.width
        dropout = stack.dropout
        placement = stack.norm_placement

        connect = placement.first_attention if first else placement.attention
        connection = connect(stack.norm, width, dropout)
        self.attention_in, self.attention_join, self.attention_out = connection
        self.attention = stack.attention.build(width)

        if cross:
            connection = placement.cross(stack.norm, width, dropout)
        else:
            connection = SublayerConnection(nn.Identity(), PassThrough(), nn.Identity())
        self.cross_in, self.cross_join, self.cross_out = connection
        self.cross = stack.attention.build(width, cross=True) if cross else NoCrossAttention()

        connection = placement.feed_forward(stack.norm, width, dropout)
        self.feed_forward_in, self.feed_forward_join, self.feed_forward_out = connection
        self.feed_forward = stack.feed_forward.build(width, dropout)

    def forward(self, x: Tensor, view: View) -> Tensor:
        mixed = self.attention(self.attention_in(x), view)
        x = self.attention_out(self.attention_join(x, mixed))
        read = self.cross(self.cross_in(x), view)
        x = self.cross_out(self.cross_join(x, read))
        changed = self.feed_forward(self.feed_forward_in(x))
        return self.feed_forward_out(self.feed_forward_join(x, changed))


class ParallelBlock(Block):
    """Attention and feed-forward side by side: both read the layer's input."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        attention = self.attention(self.attention_in(x), view)
        feed_forward = self.feed_forward(self.feed_forward_in(x))
        x = self.attention_out(self.attention_join(x, attention))
        return self.feed_forward_out(self.feed_forward_join(x, feed_forward))


class NoCrossAttention(nn.Module):
    """The cross attention of a block that has none."""

    def forward(self, x: Tensor, view: View) -> None:
        return None


class AttentionPattern(NamedTuple):
    """How far a layer attends, and how it rotates queries and keys."""

    window: Mask
    position: Position


class LocalAttention(Config):
    """Sliding-window attention: `before` positions before the query and `after` after it.

    layers: the layers it holds for; all of them if not given. position: the RoPE of these layers,
    if it differs from that of the others, as in Gemma 3 and ModernBERT.
    """

    before: Count
    after: Count = 0
    layers: Annotated[tuple[Count, ...], Field(strict=False)] | None = None  # JSON has lists
    position: Rope | None = None

    def check(self, layers: int, sizes: Sizes) -> None:
        """Raise a ConfigError if a stack of these sizes does not have those layers."""
        if self.layers == ():
            raise ConfigError("local.layers is empty; leave `local` out instead")
        for layer in self.layers or ():
            if layer >= layers:
                raise ConfigError(f"local layer {layer} does not exist; there are {layers}")
        if self.position is not None:
            self.position.check(sizes)

    def applies_to(self, layer: int) -> bool:
        """Whether that layer is local."""
        return self.layers is None or layer in self.layers

    def pattern(self, default: Position, sizes: Sizes) -> AttentionPattern:
        """The pattern of local layers; `default` is the position scheme of the others."""
        position = default
        if self.position is not None:
            position = self.position.build(sizes)
        return AttentionPattern(Mask.window(self.before, self.after), position)


class Stack(Config):
    """The shape of an encoder or a decoder.

    unique_layers: only that many blocks have weights of their own, each used by neighbouring
    layers; embedding_width: embeddings are narrower and projected up (both from ALBERT, Lan et al.
    2020).
    """

    layers: Size
    unique_layers: Size | None = None
    width: Size
    embedding_width: Size | None = None
    attention: AttentionConfig
    feed_forward: FeedForwardConfig
    position: PositionConfig
    norm: NormConfig = LayerNorm()
    norm_placement: NormPlacement = PreNorm()
    input_norm: NormConfig | None = None
    local: LocalAttention | None = None
    dropout: Fraction = 0.0

    @model_validator(mode="after")
    def _check_parts(self) -> "Stack":
        self.attention.check(self.width)
        self.position.check(self.sizes(length=1))
        if self.layers % self.blocks:
            raise ValueError(f"unique_layers={self.unique_layers} must divide layers={self.layers}")
        if self.local is not None:
            self.local.check(self.layers, self.sizes(length=1))
        return self

    @property
    def blocks(self) -> int:
        """How many blocks have weights of their own."""
        return self.unique_layers or self.layers

    @property
    def input_width(self) -> int:
        """The width of the embeddings it reads."""
        return self.embedding_width or self.width

    def sizes(self, length: int) -> Sizes:
        """The sizes that a position scheme is built for."""
        head_width = self.attention.key_width(self.width)
        return Sizes(self.input_width, self.attention.heads, head_width, length)

    def build(self, length: int, cross: bool = False) -> "Layers":
        return Layers(self, length, cross)

    def parameters(self, length: int, cross: bool = False) -> int:
        attention = self.attention.parameters(self.width)
        if cross:
            attention *= 2
        total = self.blocks * (attention + self.feed_forward.parameters(self.width))
        norms = self.norm_placement.norm_count(self.blocks, cross)
        total += norms * self.norm.parameters(self.width)
        total += norm_parameters(self.input_norm, self.input_width)
        total += self.position.parameters(self.sizes(length))
        if self.embedding_width is not None:
            total += (self.embedding_width + 1) * self.width
        return total

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
        sizes = stack.sizes(length)
        self.position = stack.position.build(sizes)
        self.norm_in = build_norm(stack.input_norm, stack.input_width)
        self.dropout = Dropout(stack.dropout)
        self.widen: nn.Module = nn.Identity()
        if stack.embedding_width is not None:
            self.widen = nn.Linear(stack.input_width, stack.width)
        block_class = ParallelBlock if stack.norm_placement.parallel else Block
        for i in range(stack.blocks):
            self.add_module(str(i), block_class(stack, cross, first=i == 0))
        self.norm_out = stack.norm_placement.final_norm(stack.norm, stack.width)
        self.count = stack.layers
        # The number of each layer's block, and of each layer's attention pattern.
        self.block_of = [i * stack.blocks // stack.layers for i in range(stack.layers)]
        self.patterns = [AttentionPattern(FULL_MASK, self.position)]
        self.pattern_of = [0] * stack.layers
        if stack.local is not None:
            self.patterns.append(stack.local.pattern(self.position, sizes))
            self.pattern_of = [int(stack.local.applies_to(i)) for i in range(stack.layers)]

    def blocks(self) -> Iterator[Block]:
        """The block of each layer; a block that several layers share comes several times."""
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
        """x (B, T, D) through all blocks; with a cache, x follows the positions in the cache."""
        start = 0
        if cache is not None:
            if len(cache.layers) != self.count:
                raise CacheError(
                    f"the cache has {len(cache.layers)} layers, the model {self.count}"
                )
            start = cache.length
        positions = self._positions(x, positions, start)
        x = self.widen(self.dropout(self.norm_in(self.position.embed(x, positions))))
        views = []
        for pattern in self.patterns:
            view = View(  # all fields: torch.compile cannot trace a default that is an object
                mask=mask & pattern.window & self.position.mask(x.dtype),
                rope=pattern.position.rope(positions, x.dtype),
                cache=NO_CACHE,
                cross_cache=NO_CACHE,
                memory=memory,
                memory_mask=FULL_MASK if memory_mask is None else memory_mask,
            )
            views.append(view)
        for i, block in enumerate(self.blocks()):
            x = block(x, views[self.pattern_of[i]].of_layer(i, cache))
        return self.norm_out(x)

    def _positions(self, x: Tensor, positions: Tensor | None, start: int) -> Tensor:
        """The positions (T,) or (B, T) of x; by default they count up from `start`."""
        stop = start + x.shape[1]
        if positions is not None:
            if positions.shape[-1] != x.shape[1]:
                raise ShapeError(
                    f"{positions.shape[-1]} positions are given for {x.shape[1]} tokens"
                )
            return positions
        if self.position.limit is not None and stop > self.position.limit:
            raise ShapeError(
                f"the text reaches position {stop} but the model reads at most "
                f"{self.position.limit}; shorten it"
            )
        return torch.arange(start, stop, device=x.device)
