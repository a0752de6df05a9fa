"""Modules of an optimized model that compute through the compiled kernels; see `qkv.kernels`.

The kernels have no gradients. Where one may be needed, each module falls back to torch.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn

from qkv.attention import Mask, Tile, check_sizes, scale_factor
from qkv.engine.optimized.fused import (
    OptimizedLogits,
    PostNormBlock,
    PostNormCrossBlock,
    activation_name,
    up_down_linears,
)
from qkv.engine.optimized.linear import DenseLinear, LinearLike
from qkv.engine.optimized.quantized import (
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedMatrix,
    int8_supported,
)
from qkv.kernels import ACTIVATIONS, Matrix, PackedMatrix, inference_kernels
from qkv.model import AttentionCore, Block, CrossAttention, FeedForward, NoCrossAttention, View

MAX_DECODE_QUERIES = 8  # beyond which torch's attention kernel is faster


class KernelLinear(DenseLinear):
    """x·Wᵀ + b; for several rows the matrix is also packed into panels."""

    predecessor: KernelLinear | None = None  # the layer that is likely computed right before

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not x.numel():
            return super().forward(x)
        # One row: reading the matrix takes all the time, so it is read as it is.
        if x.numel() == x.shape[-1]:
            row = inference_kernels().matvec(self.matrix, x.reshape(-1))
            return row.view(*x.shape[:-1], -1)
        if self.is_packed or self.worth_packing(x.numel() // x.shape[-1]):
            return inference_kernels().linear(self.packed_matrix, x)
        return super().forward(x)

    @property
    def is_packed(self) -> bool:
        return "packed_matrix" in self.__dict__

    @cached_property
    def matrix(self) -> Matrix:
        return Matrix.of(self.weight, None, self.bias)

    @cached_property
    def packed_matrix(self) -> PackedMatrix:
        # A copy in another order: the plain weight stays, for single rows and gradients.
        panels = inference_kernels().pack(self.weight)
        packed = PackedMatrix.of(panels, self.bias, len(self.weight))
        if self.predecessor is not None and self.predecessor.is_packed:
            self.predecessor.packed_matrix.prefetch_next(packed)
        return packed


def link_prefetches(model: nn.Module) -> None:
    """Lets each linear layer know which one comes before it, so that weights are prefetched."""
    once = set[nn.Module]()  # keys and values of the source: once per text, not once per token
    for module in model.modules():
        if isinstance(module, CrossAttention):
            once.update(module.key.modules())
            once.update(module.value.modules())
    linears = [
        module
        for module in model.modules()
        if isinstance(module, KernelLinear) and module not in once
    ]
    for predecessor, linear in pairwise(linears):
        # Past nn.Module's __setattr__, which would make it a child.
        linear.__dict__["predecessor"] = predecessor


class KernelQuantizedLinear(QuantizedLinear):
    """The same in int8."""

    def __init__(self, *layers: LinearLike, quantized: QuantizedMatrix | None = None) -> None:
        super().__init__(*layers, quantized=quantized)
        if self.bias is None:
            self.bias_or_zeros = torch.zeros_like(self.weight.scale)
        else:
            self.bias_or_zeros = self.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) == 1:
            out = inference_kernels().matvec(self.matrix, rows[0])
        elif len(rows):
            out = self.matmul_dequantize(*inference_kernels().quantize_rows(rows))
        else:
            out = x.new_empty(0, len(self.weight.scale))
        return out.view(*x.shape[:-1], len(self.weight.scale))

    @cached_property
    def matrix(self) -> Matrix:
        return Matrix.of(self.weight.values, self.weight.scale, self.bias)

    def matmul_int8(self, quantized: Tensor) -> Tensor:
        # With VNNI torch's integer product is faster than ours; without, it is many times slower.
        if int8_supported():
            return super().matmul_int8(quantized)
        return inference_kernels().gemm_int8(quantized, self.weight.values)

    def matmul_dequantize(self, quantized: Tensor, scale: Tensor) -> Tensor:
        """The product with int8 rows (M, K) of those scales (M,) -> (M, N)."""
        sums = self.matmul_int8(quantized)
        return inference_kernels().dequantize(sums, scale, self.weight.scale, self.bias_or_zeros)


class KernelLogits(OptimizedLogits):
    """The logits of all tokens, or only their argmax."""

    def argmax(self, state: Tensor, count: int) -> tuple[int, float]:
        """The most probable of the first `count` tokens after a state (D,), and its logprob."""
        assert isinstance(self.linear, KernelLinear | KernelQuantizedLinear)
        return inference_kernels().argmax(self.linear.matrix, self.scale(state), count)


class KernelQuantizedEmbedding(QuantizedEmbedding):
    """An int8 embedding; a single token is one call."""

    def rows(self, ids: Tensor) -> Tensor:
        if ids.numel() != 1:
            return super().rows(ids)
        return inference_kernels().dequantize_row(self.matrix, int(ids)).view(*ids.shape, -1)

    @cached_property
    def matrix(self) -> Matrix:
        return Matrix.of(self.table.values, self.table.scale, None)


class KernelFeedForward(nn.Module):
    """A float32 `FeedForward` whose hidden rows stay in the cache."""

    def __init__(self, plain: FeedForward) -> None:
        super().__init__()
        up, down = up_down_linears(plain)
        self.up = KernelLinear(up)
        self.down = KernelLinear(down)
        self.activation = plain.activation
        self.code = require_activation_code(plain.activation)

    def forward(self, x: Tensor) -> Tensor:
        # The linear layers count their rows and pack themselves; once both have, they are fused.
        single_row = x.numel() <= x.shape[-1]
        is_packed = self.up.is_packed and self.down.is_packed
        if single_row or not is_packed or torch.is_grad_enabled():
            return self.down(self.activation(self.up(x)))
        return inference_kernels().feed_forward(
            self.up.packed_matrix, self.down.packed_matrix, x, self.code
        )


class KernelQuantizedFeedForward(nn.Module):
    """An int8 `FeedForward`: dequantize, activate and quantize again are one pass."""

    def __init__(self, plain: FeedForward) -> None:
        super().__init__()
        up, down = up_down_linears(plain)
        self.up = KernelQuantizedLinear(up)
        self.down = KernelQuantizedLinear(down)
        self.activation = plain.activation
        self.code = require_activation_code(plain.activation)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() <= x.shape[-1]:
            return self.down(self.activation(self.up(x)))
        kernels = inference_kernels()
        quantized, scale = kernels.quantize_rows(x.reshape(-1, x.shape[-1]))
        hidden, hidden_scale = kernels.dequantize_activate_quantize(
            self.up.matmul_int8(quantized),
            scale,
            self.up.weight.scale,
            self.up.bias_or_zeros,
            self.code,
        )
        return self.down.matmul_dequantize(hidden, hidden_scale).view_as(x)


class KernelAttentionCore(AttentionCore):
    """Attention through the kernels for a few queries, and for sequences packed into one row."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        check_sizes(q, k, v, mask)
        if not (self.hook_point.has_hooks or self.cap is not None or torch.is_grad_enabled()):
            out = self._kernel(q, k, v, mask)
            if out is not None:
                return out
        return super().forward(q, k, v, mask)

    def _kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor | None:
        """The output of a kernel, if one supports this case and is faster."""
        # The kernels take keys and values of one width, and rows that are contiguous.
        if k.shape[-1] != v.shape[-1]:
            return None
        if not all(t.stride(-1) == 1 and t.dtype == torch.float32 for t in (q, k, v)):
            return None
        scale = scale_factor(q.shape[-1], self.scale)
        packing = mask.packing()
        if packing is not None:
            texts, rest = packing
            if rest.parts:
                return None
            return inference_kernels().attention_varlen(q, k, v, texts.lengths, scale)
        tile = Tile.full(q.shape[2], k.shape[2], q.device)
        if q.shape[2] > MAX_DECODE_QUERIES or mask.bias_in(tile) is not None:
            return None
        return inference_kernels().attention_decode(q, k, v, mask.allowed_in(tile), scale)


def add_norm(fresh: Tensor, x: Tensor, norm: nn.Module) -> Tensor:
    """norm(fresh + x), in the memory of `fresh`."""
    assert isinstance(norm, nn.LayerNorm)
    if torch.is_grad_enabled():
        return norm(fresh + x)
    return inference_kernels().add_layer_norm(fresh, x, norm)


class KernelPostNormBlock(PostNormBlock):
    """A residual sum and its norm are one pass."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = add_norm(self.attention(x, view), x, self.attention_out)
        return add_norm(self.feed_forward(x), x, self.feed_forward_out)


class KernelPostNormCrossBlock(PostNormCrossBlock):
    """A residual sum and its norm are one pass."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = add_norm(self.attention(x, view), x, self.attention_out)
        x = add_norm(self.cross(x, view), x, self.cross_out)
        return add_norm(self.feed_forward(x), x, self.feed_forward_out)


KERNEL_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    AttentionCore: KernelAttentionCore,
    PostNormBlock: KernelPostNormBlock,
    PostNormCrossBlock: KernelPostNormCrossBlock,
}


def kernel_class(kind: type[nn.Module]) -> type[nn.Module]:
    """The class that computes the same through kernels; the same class if there is none."""
    return KERNEL_CLASSES.get(kind, kind)


def has_layer_norms(block: Block) -> bool:
    """Whether every norm after a part of the block is one that `add_norm` supports."""
    norms = [block.attention_out, block.feed_forward_out]
    if not isinstance(block.cross, NoCrossAttention):
        norms.append(block.cross_out)
    return all(type(norm) is nn.LayerNorm and norm.bias is not None for norm in norms)


def activation_code(activation: nn.Module) -> int | None:
    """The kernels' code of an activation; None if they do not have it."""
    return ACTIVATIONS.get(activation_name(activation) or "")


def require_activation_code(activation: nn.Module) -> int:
    """The code of an activation that the kernels do have."""
    code = activation_code(activation)
    assert code is not None
    return code
