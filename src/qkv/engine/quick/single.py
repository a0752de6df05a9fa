"""One more token of one sequence, in as few operations as there are.

At batch 1 a small model spends its time between the products: each operation costs microseconds
whatever its size. For the commonest kind of decoder (pre-norm with root mean squares, rotary
positions, a gated feed-forward; Llama and its kin) a layer is about thirty operations here, where
the general way takes twice as many. The numbers are the same, and so is the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from qkv.attention import KVCache, Mask, Rotation, Slot, Unturned
from qkv.engine.quick.attention import JoinedTurnAttention
from qkv.engine.quick.block import PreNormBlock
from qkv.engine.quick.feed_forward import JoinedFeedForward
from qkv.engine.quick.int8 import Int8
from qkv.engine.quick.linear import Plain
from qkv.engine.quick.norm import QuickRMSNorm
from qkv.model.attention import Tap
from qkv.model.block import Block
from qkv.model.position.rotary import Turning
from qkv.model.stack import Layers

FIRST = 16  # keys; with fewer, torch's kernel turns a NaN query into zeros

Product = Plain | Int8


class SingleLayers(Layers):
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
            or type(cache.slots[0]) is not Slot
            or not mask.only_causal()
            or torch.is_grad_enabled()
            or any(tap.watched for tap in self.taps)
        ):
            return super().forward(x, mask, positions, cache, memory, memory_mask)
        return self._one(x.view(-1), cache).view(1, 1, -1)

    @cached_property
    def lines(self) -> list[Line]:
        """What each layer is made of, at hand."""
        found = [line_of(block) for block in self.blocks()]
        return [line for line in found if line is not None]

    @cached_property
    def taps(self) -> list[Tap]:
        """Where somebody may want to see the steps of an attention."""
        return [line.attention.mix.steps for line in self.lines]

    def _one(self, x: Tensor, cache: KVCache) -> Tensor:
        """x (D,) through all blocks and the last norm; its keys and values join the cache."""
        at = torch.tensor([cache.length], device=x.device)
        rotation = self.position.rotation(at, x.dtype)
        for slot, line in zip(cache.slots, self.lines, strict=True):
            x = line.fed_forward(line.attended(x, slot, rotation))
        normed: Tensor = self.norm_out(x)
        return normed


@dataclass(frozen=True)
class Line:
    """One layer for one row: x + attention(norm(x)), then x + feed-forward(norm(x))."""

    attention: JoinedTurnAttention
    project: Product
    mixed: Product
    norm: QuickRMSNorm
    activation: nn.Module
    widen: Product
    narrow: Product
    wide_norm: QuickRMSNorm

    def attended(self, x: Tensor, slot: Slot, rotation: Rotation | Unturned) -> Tensor:
        part = self.attention
        H, K, _ = part.heads
        asked, v = torch.split(_normed(self.norm, x, self.project), part.asked_and_values)
        turned = rotation.turn(asked.view(H + K, -1))  # (H + K, E)
        k, v = slot.append(turned[H:].view(1, K, 1, -1), v.view(1, K, 1, -1))  # (1, K, S, E)
        q = turned[:H].view(1, H, 1, -1)
        seen = scaled_dot_product_attention(q, k, v, scale=part.mix.scale, enable_gqa=H != K)
        return self.mixed.one_more(x, seen.view(-1))

    def fed_forward(self, x: Tensor) -> Tensor:
        gate, up = _normed(self.wide_norm, x, self.widen).chunk(2)
        return self.narrow.one_more(x, self.activation(gate).mul_(up))


def _normed(norm: QuickRMSNorm, x: Tensor, product: Product) -> Tensor:
    """product(norm(x)); the size of x is a plain number, and joins the product last."""
    size = (float(torch.dot(x, x)) / len(x) + norm.eps) ** -0.5
    return product.one(x * norm.gain, size)


def fits(layers: Layers) -> bool:
    """Whether all parts are of the kinds that have a short way."""
    return (
        isinstance(layers.norm_in, nn.Identity)
        and isinstance(layers.widen, nn.Identity)
        and isinstance(layers.position, Turning)
        and len(layers.ways) == 1
        and all(line_of(block) is not None for block in layers.blocks())
    )


def line_of(block: Block) -> Line | None:
    """The layer for one row, if its parts are of the kinds that have a short way."""
    attention, wide = block.attention, block.feed_forward
    norm, wide_norm = block.attention_in, block.feed_forward_in
    if not (
        isinstance(block, PreNormBlock)
        and isinstance(attention, JoinedTurnAttention)
        and attention.mix.cap is None
        and attention.widths[1] == attention.widths[2]
        and isinstance(wide, JoinedFeedForward)
        and isinstance(norm, QuickRMSNorm)
        and isinstance(wide_norm, QuickRMSNorm)
    ):
        return None
    project, mixed, widen, narrow = attention.project, attention.output, wide.widen, wide.down
    assert isinstance(project, Product)
    assert isinstance(mixed, Product)
    assert isinstance(widen, Product)
    assert isinstance(narrow, Product)
    return Line(attention, project, mixed, norm, wide.activation, widen, narrow, wide_norm)
