"""The parts of a twin whose inner loops are compiled; see `qkv.kernels`."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn

from qkv.attention import Mask
from qkv.attention.mask import Tile
from qkv.attention.reference import check_sizes, scale_factor
from qkv.engine.optimized.fused import (
    PostNormBlock,
    PostNormCrossBlock,
    Scores,
    name_of,
    up_and_down,
)
from qkv.engine.optimized.linear import Layer, Plain
from qkv.engine.optimized.quantized import Int8, QuantizedEmbedding, Rounded, int8_supported
from qkv.kernels import ACTIVATIONS, Matrix, Panels, inference_kernels
from qkv.model.attention import AttentionCore, CrossAttention
from qkv.model.feed_forward import FeedForward
from qkv.model.stack import Block, NoCrossAttention
from qkv.model.view import View

QUERIES = 8  # up to which a loop over queries is quicker than torch's kernel


class KernelLinear(Plain):
    """x·Wᵀ + b through the loops; for several rows the matrix also lies in panels.

    There is no slope through the loops; where one may be wanted they are not used.
    """

    before: KernelLinear | None = None  # the product that is likely computed right before

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not x.numel():
            return super().forward(x)
        if x.numel() == x.shape[-1]:
            return inference_kernels().multiply(self.matrix, x.reshape(-1)).view(*x.shape[:-1], -1)
        if self.packed or self.worth_packing(x.numel() // x.shape[-1]):
            return inference_kernels().products(self.panels, x)
        return super().forward(x)

    @property
    def packed(self) -> bool:
        return "panels" in self.__dict__

    @cached_property
    def matrix(self) -> Matrix:
        return Matrix.of(self.weight, None, self.bias)

    @cached_property
    def panels(self) -> Panels:
        made = Panels.of(inference_kernels().packed(self.weight), self.bias, len(self.weight))
        if self.before is not None and self.before.packed:
            self.before.panels.then(made)
        return made


def in_turn(twin: nn.Module) -> None:
    """Tells each product which one is likely computed before it: in the order of the parts."""
    sources = [m for m in twin.modules() if isinstance(m, CrossAttention)]  # read once a text
    once = {p for m in sources for side in (m.key, m.value) for p in side.modules()}
    each = [m for m in twin.modules() if isinstance(m, KernelLinear) and m not in once]
    for before, product in pairwise(each):
        product.__dict__["before"] = before  # known, but no part of it


class KernelQuantizedLinear(Int8):
    """The same with W in 8 bits, and rows rounded to 8 bits each by itself, as `Int8` has it."""

    def __init__(self, *layers: Layer, rounded: Rounded | None = None) -> None:
        super().__init__(*layers, rounded=rounded)
        self.added = torch.zeros_like(self.weight.scale) if self.bias is None else self.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) == 1:
            return inference_kernels().multiply(self.matrix, rows[0]).view(*x.shape[:-1], -1)
        if not len(rows):
            return x.new_empty(*x.shape[:-1], len(self.weight.scale))
        return self.sized(*inference_kernels().rounded(rows)).view(*x.shape[:-1], -1)

    @cached_property
    def matrix(self) -> Matrix:
        return Matrix.of(self.weight.whole, self.weight.scale, self.bias)

    def sums(self, whole: Tensor) -> Tensor:
        return (
            super().sums(whole)
            if int8_supported()
            else inference_kernels().sums(whole, self.weight.whole)
        )

    def sized(self, whole: Tensor, step: Tensor) -> Tensor:
        """The product with rows that count in steps."""
        return inference_kernels().unrounded(self.sums(whole), step, self.weight.scale, self.added)


class KernelLogits(Scores):
    """The scores of all tokens, or only which is the greatest."""

    def argmax(self, state: Tensor, known: int) -> tuple[int, float]:
        """Which of the first `known` tokens scores highest after a state (D,), and its logprob."""
        assert isinstance(self.product, KernelLinear | KernelQuantizedLinear)
        return inference_kernels().argmax(self.product.matrix, self.scale(state), known)


class KernelQuantizedEmbedding(QuantizedEmbedding):
    """An embedding whose table is in 8 bits; a single token goes through the loops."""

    def rows(self, ids: Tensor) -> Tensor:
        if ids.numel() != 1:
            return super().rows(ids)
        return inference_kernels().row(self.matrix, int(ids)).view(*ids.shape, -1)

    @cached_property
    def matrix(self) -> Matrix:
        return Matrix.of(self.table.whole, self.table.scale, None)


class KernelFeedForward(nn.Module):
    """A `FeedForward` in float32; wide rows are bent as they come and stay in the cache."""

    def __init__(self, plain: FeedForward) -> None:
        super().__init__()
        self.up, self.down = map(KernelLinear, up_and_down(plain))
        self.activation, self.kind = plain.activation, _known(plain.activation)

    def forward(self, x: Tensor) -> Tensor:
        few = x.numel() <= x.shape[-1] or not (self.up.packed and self.down.packed)
        if few or torch.is_grad_enabled():
            return self.down(self.activation(self.up(x)))
        return inference_kernels().fed_forward(self.up.panels, self.down.panels, x, self.kind)


class KernelQuantizedFeedForward(nn.Module):
    """A `FeedForward` in 8 bits; wide rows are scaled, bent and rounded in one pass."""

    def __init__(self, plain: FeedForward) -> None:
        super().__init__()
        self.up, self.down = map(KernelQuantizedLinear, up_and_down(plain))
        self.activation, self.kind = plain.activation, _known(plain.activation)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() <= x.shape[-1]:
            return self.down(self.activation(self.up(x)))
        up = self.up
        whole, step = inference_kernels().rounded(x.reshape(-1, x.shape[-1]))
        wide = inference_kernels().bent_and_rounded(
            up.sums(whole), step, up.weight.scale, up.added, self.kind
        )
        return self.down.sized(*wide).view_as(x)


class KernelAttentionCore(AttentionCore):
    """Attention; within texts of one row, and of a few queries, it goes through the loops."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        check_sizes(q, k, v, mask)
        general = self.hook_point.has_hooks or self.cap is not None or torch.is_grad_enabled()
        looped = None if general else self._kernel(q, k, v, mask)
        return super().forward(q, k, v, mask) if looped is None else looped

    def _kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor | None:
        """The same through the loops, if they know this case."""
        if k.shape[-1] != v.shape[-1] or not all(
            t.stride(-1) == 1 and t.dtype == torch.float32 for t in (q, k, v)
        ):
            return None
        scale, packing = scale_factor(q.shape[-1], self.scale), mask.packing()
        if packing is not None:
            texts, more = packing
            return (
                None
                if more.parts
                else inference_kernels().attend_texts(q, k, v, texts.lengths, scale)
            )
        tile = Tile.full(q.shape[2], k.shape[2], q.device)
        if q.shape[2] > QUERIES or mask.bias_in(tile) is not None:
            return None
        return inference_kernels().attend(q, k, v, mask.allowed_in(tile), scale)


def summed(fresh: Tensor, x: Tensor, norm: nn.Module) -> Tensor:
    """norm(fresh + x), in place of what is fresh."""
    assert isinstance(norm, nn.LayerNorm)
    if torch.is_grad_enabled():
        return norm(fresh + x)
    return inference_kernels().add_and_norm(fresh, x, norm)


class KernelPostNormBlock(PostNormBlock):
    """A sum and its norm are one pass."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = summed(self.attention(x, view), x, self.attention_out)
        return summed(self.feed_forward(x), x, self.feed_forward_out)


class KernelPostNormCrossBlock(PostNormCrossBlock):
    """A sum and its norm are one pass."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = summed(self.attention(x, view), x, self.attention_out)
        x = summed(self.cross(x, view), x, self.cross_out)
        return summed(self.feed_forward(x), x, self.feed_forward_out)


KERNEL_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    AttentionCore: KernelAttentionCore,
    PostNormBlock: KernelPostNormBlock,
    PostNormCrossBlock: KernelPostNormCrossBlock,
}


def kernel_class(kind: type[nn.Module]) -> type[nn.Module]:
    """The class that does the same with compiled loops, if there is one."""
    return KERNEL_CLASSES.get(kind, kind)


def layer_norms(block: Block) -> bool:
    """Whether all norms behind the block's parts are those the loops know."""
    norms = [block.attention_out, block.feed_forward_out]
    norms += [] if isinstance(block.cross, NoCrossAttention) else [block.cross_out]
    return all(type(norm) is nn.LayerNorm and norm.bias is not None for norm in norms)


def activation_number(activation: nn.Module) -> int | None:
    """Its number for the loops, if they have it."""
    return ACTIVATIONS.get(name_of(activation) or "")


def _known(activation: nn.Module) -> int:
    number = activation_number(activation)
    assert number is not None
    return number
