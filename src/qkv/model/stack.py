"""Blocks on top of each other, with the positions they share: an encoder or a decoder."""

from collections.abc import Iterator

import torch
from pydantic import model_validator
from torch import Tensor, nn

from qkv.attention import NO_SLOT, SEE_ALL, KVCache, Mask
from qkv.errors import CacheError, ShapeError
from qkv.model.block import Block
from qkv.model.choice import Choice, Share, Size
from qkv.model.dropout import Dropout
from qkv.model.feed_forward import FeedForwardChoice
from qkv.model.heads import AttentionChoice
from qkv.model.norm import LayerNorm, Norm, build_norm, norm_parameters
from qkv.model.position import PositionChoice, Room
from qkv.model.residual import ArrangementChoice, PreNorm
from qkv.model.view import View


class Stack(Choice):
    """The shape of an encoder or a decoder."""

    layers: Size
    width: Size
    attention: AttentionChoice
    feed_forward: FeedForwardChoice
    position: PositionChoice
    norm: Norm = LayerNorm()
    residual: ArrangementChoice = PreNorm()
    input_norm: Norm | None = None
    dropout: Share = 0.0

    @model_validator(mode="after")
    def _parts_fit(self) -> "Stack":
        self.attention.fit(self.width)
        self.position.fit(self.room(length=1))
        return self

    def room(self, length: int) -> Room:
        heads = self.attention
        return Room(self.width, heads.heads, heads.key_width(self.width), length)

    def build(self, length: int, cross: bool = False) -> "Layers":
        return Layers(self, length, cross)

    def parameters(self, length: int, cross: bool = False) -> int:
        attention = self.attention.parameters(self.width) * (2 if cross else 1)
        block = attention + self.feed_forward.parameters(self.width)
        norms = self.residual.norms(self.layers, cross) * self.norm.parameters(self.width)
        ends = norm_parameters(self.input_norm, self.width) + self.position.parameters(
            self.room(length)
        )
        return self.layers * block + norms + ends

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
            kv_heads=self.attention.shared_heads,
            capacity=capacity,
            head_width=self.attention.key_width(self.width),
            value_width=self.attention.mixed_width(self.width),
            device=device,
            dtype=dtype,
        )


class Layers(nn.Module):
    """The blocks of a stack, named 0, 1, 2, …, so that paths read `decoder.0.attention`."""

    def __init__(self, stack: Stack, length: int, cross: bool) -> None:
        super().__init__()
        s = stack
        self.position = s.position.build(s.room(length))
        self.norm_in = build_norm(s.input_norm, s.width)
        self.dropout = Dropout(s.dropout)
        for i in range(s.layers):
            block = Block(
                s.width, s.attention, s.feed_forward, s.norm, s.residual, s.dropout, cross
            )
            self.add_module(str(i), block)
        self.norm_out = s.residual.final(s.norm, s.width)
        self.count = s.layers

    def blocks(self) -> Iterator[Block]:
        for i in range(self.count):
            block = self.get_submodule(str(i))
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
        if cache is not None and len(cache.slots) != self.count:
            raise CacheError(f"the cache has {len(cache.slots)} layers, the model {self.count}")
        positions = self._positions(x, positions, 0 if cache is None else cache.length)
        x = self.dropout(self.norm_in(self.position.embed(x, positions)))
        view = View(  # named in full: torch.compile cannot trace a default that is an object
            mask=mask & self.position.mask(x.dtype),
            rotation=self.position.rotation(positions, x.dtype),
            slot=NO_SLOT,
            cross_slot=NO_SLOT,
            memory=memory,
            memory_mask=SEE_ALL if memory_mask is None else memory_mask,
        )
        for i, block in enumerate(self.blocks()):
            x = block(x, view.of_layer(i, cache))
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
