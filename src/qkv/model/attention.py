"""Multi-head attention with weights: projections to heads, the attention core, the output.

The modules come first, then the configs that build them. `AttentionCore` is the only part that
knows about kernels; a forward hook on its `hook_point` makes it compute every intermediate.
"""

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from qkv.attention import (
    AttentionSteps,
    Mask,
    attend,
    join_heads,
    project_block_diagonal,
    project_low_rank,
    reference,
    split_heads,
)
from qkv.errors import ConfigError, ShapeError
from qkv.model.config import PartConfig, Size
from qkv.model.norm import NormConfig, build_norm, count_parameters, norm_parameters
from qkv.model.view import View


class Attention(nn.Module):
    """Self-attention: queries, keys and values all come from x."""

    def __init__(
        self,
        query: nn.Module,
        key: nn.Module,
        value: nn.Module,
        output: nn.Module,
        query_norm: nn.Module,
        key_norm: nn.Module,
        scale: float | None,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.query = query
        self.key = key
        self.value = value
        self.query_norm = query_norm
        self.key_norm = key_norm
        self.core = AttentionCore(scale, cap)
        self.output = output

    def forward(self, x: Tensor, view: View) -> Tensor:
        q = view.rope.rotate(self.query_norm(self.query(x)))  # (B, H, T, E)
        k = view.rope.rotate(self.key_norm(self.key(x)))  # (B, K, T, E)
        k, v = view.cache.append(k, self.value(x))  # (B, K, S, E)
        return self.output(join_heads(self.core(q, k, v, view.mask)))


class CrossAttention(Attention):
    """Cross attention: queries come from x, keys and values from the encoder's output."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        if view.memory is None:
            raise ShapeError("a decoder with cross attention needs the encoder's output as memory")
        q = self.query_norm(self.query(x))  # (B, H, T, E)
        k, v = view.cross_cache.get_or_compute(view.memory, self._keys_and_values)
        return self.output(join_heads(self.core(q, k, v, view.memory_mask)))

    def _keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_norm(self.key(memory)), self.value(memory)


class AttentionCore(nn.Module):
    """softmax(Q·Kᵀ·scale + mask)·V by a fused kernel, or step by step if somebody watches.

    With a forward hook on `hook_point` the reference kernel runs instead, and the hook gets every
    intermediate as `AttentionSteps`; what it returns replaces them.
    """

    def __init__(self, scale: float | None, cap: float | None = None) -> None:
        super().__init__()
        self.scale = scale
        self.cap = cap
        self.hook_point = StepsHook()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.hook_point.has_hooks:
            steps = reference(q, k, v, mask, self.scale, self.cap)
            return self.hook_point(steps).output
        return attend(q, k, v, mask, self.scale, self.cap)


class StepsHook(nn.Module):
    """The identity on `AttentionSteps`: a place to register forward hooks."""

    @property
    def has_hooks(self) -> bool:
        """Whether any hook is registered."""
        return bool(self._forward_hooks or self._forward_pre_hooks)

    def forward(self, steps: AttentionSteps) -> AttentionSteps:
        return steps


class HeadProjection(nn.Linear):
    """One matrix for all heads, each of which reads the full input (Vaswani et al. 2017).

    (B, T, D) -> (B, H, T, E)
    """

    def __init__(self, width: int, heads: int, head_width: int, bias: bool) -> None:
        super().__init__(width, heads * head_width, bias)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(super().forward(x), self.heads)


class BlockDiagonalProjection(nn.Module):
    """Head i reads slice i of the input through its own square matrix.

    (B, T, D) -> (B, H, T, D/H)
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, width // heads, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        return project_block_diagonal(x, self.weight)


class LowRankProjection(nn.Module):
    """x·down·up: a projection through a narrow space of `rank` dimensions.

    (B, T, D) -> (B, H, T, E)
    """

    def __init__(self, width: int, rank: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(width, rank))
        self.up = nn.Parameter(torch.empty(rank, heads * head_width))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(project_low_rank(x, self.down, self.up), self.heads)


class AttentionConfig(PartConfig):
    """An attention variant. It needs `kind`, `heads` and `build`.

    The widths are those of the cache: it stores, for each position and each of `num_kv_heads`
    heads, a key of `key_width` and a value of `value_head_width`. What the methods below them
    count is used by `cost`; their defaults are estimates.
    """

    if TYPE_CHECKING:
        heads: int
        scale: float | None

    def build(self, width: int, cross: bool = False) -> nn.Module:
        """The module: forward(x, view) with x (B, T, width) -> (B, T, width)."""
        raise NotImplementedError

    def check(self, width: int) -> None:
        """Raise a ConfigError if it cannot be built for this width."""
        if width % self.heads:
            raise ConfigError(_does_not_divide(self.heads, width))

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values; fewer than `heads` where groups of heads share them."""
        return self.heads

    def key_width(self, width: int) -> int:
        """E: the width of one head's queries and keys."""
        return width // self.heads

    def value_head_width(self, width: int) -> int:
        """The width of one head's values."""
        return self.key_width(width)

    def parameters(self, width: int) -> int:
        """How many parameters `build` makes."""
        return count_parameters(lambda: self.build(width))

    def query_macs(self, width: int) -> int:
        """Multiply–accumulates of one query position in projections: queries and output."""
        return self.parameters(width) // 2

    def key_value_macs(self, width: int) -> int:
        """Multiply–accumulates of one key position in projections: keys and values."""
        return self.parameters(width) - self.query_macs(width)

    def pair_macs(self, width: int) -> int:
        """Multiply–accumulates of one query with one key, over all heads: Q·Kᵀ and weights·V."""
        return self.heads * (self.key_width(width) + self.value_head_width(width))

    def cache_elements(self, width: int) -> int:
        """Elements in the cache for one position."""
        return self.num_kv_heads * (self.key_width(width) + self.value_head_width(width))

    def query_activation_elements(self, width: int) -> int:
        """Elements that autograd saves for one query position: q, the output, log-sum-exp."""
        return self.heads * (self.key_width(width) + self.value_head_width(width) + 1)

    def key_value_activation_elements(self, width: int) -> int:
        """Elements that autograd saves for one key position."""
        return self.cache_elements(width)


class MultiHead(AttentionConfig):
    """Multi-head attention (Vaswani et al. 2017); fewer `kv_heads` are shared by groups of heads.

    One key/value head for all is multi-query attention (Shazeer 2019); in between is grouped-query
    attention (Ainslie et al. 2023).
    """

    kind: Literal["multi_head"] = "multi_head"
    heads: Size
    kv_heads: Size | None = None
    head_width: Size | None = None
    value_width: Size | None = None
    value_rank: Size | None = None
    bias: bool = True
    output_bias: bool = True
    qk_norm: NormConfig | None = None
    scale: float | None = None
    cap: PositiveFloat | None = None  # no scaled score is larger

    def check(self, width: int) -> None:
        if self.head_width is None and width % self.heads:
            raise ConfigError(_does_not_divide(self.heads, width))
        if self.heads % self.num_kv_heads:
            raise ConfigError(f"kv_heads={self.kv_heads} must divide heads={self.heads}")

    @property
    def num_kv_heads(self) -> int:
        return self.kv_heads or self.heads

    def key_width(self, width: int) -> int:
        return self.head_width or width // self.heads

    def value_head_width(self, width: int) -> int:
        return self.value_width or self.key_width(width)

    def build(self, width: int, cross: bool = False) -> Attention:
        key_width = self.key_width(width)
        value_width = self.value_head_width(width)
        value: nn.Module
        if self.value_rank is None:
            value = HeadProjection(width, self.num_kv_heads, value_width, self.bias)
        else:
            value = LowRankProjection(width, self.value_rank, self.num_kv_heads, value_width)
        return _attention_class(cross)(
            query=HeadProjection(width, self.heads, key_width, self.bias),
            key=HeadProjection(width, self.num_kv_heads, key_width, self.bias),
            value=value,
            output=nn.Linear(self.heads * value_width, width, self.output_bias),
            query_norm=build_norm(self.qk_norm, key_width),
            key_norm=build_norm(self.qk_norm, key_width),
            scale=self.scale,
            cap=self.cap,
        )

    def parameters(self, width: int) -> int:
        key_width = self.key_width(width)
        total = self.query_macs(width) + self.key_value_macs(width)
        total += 2 * norm_parameters(self.qk_norm, key_width)
        if self.bias:
            total += (self.heads + self.num_kv_heads) * key_width
            if self.value_rank is None:  # a low-rank value has no bias
                total += self.num_kv_heads * self.value_head_width(width)
        if self.output_bias:
            total += width
        return total

    def query_macs(self, width: int) -> int:
        return width * self.heads * (self.key_width(width) + self.value_head_width(width))

    def key_value_macs(self, width: int) -> int:
        keys = self.num_kv_heads * self.key_width(width)
        values = self.num_kv_heads * self.value_head_width(width)
        if self.value_rank is None:
            return width * (keys + values)
        return width * keys + self.value_rank * (width + values)

    def query_activation_elements(self, width: int) -> int:
        # The kernel pads queries and values to one width. It answers in the memory layout of the
        # queries: if a norm or the padding has laid them out head by head, joining the heads of
        # the output needs a copy.
        key_width = self.key_width(width)
        value_width = self.value_head_width(width)
        padded = max(key_width, value_width)
        total = 2 * padded + 1 + self._norm_elements(key_width)
        if self.qk_norm is not None or key_width != value_width:
            total += value_width
        return self.heads * total

    def key_value_activation_elements(self, width: int) -> int:
        key_width = self.key_width(width)
        padded = max(key_width, self.value_head_width(width))
        per_head = 2 * padded + self._norm_elements(key_width)
        return self.num_kv_heads * per_head + (self.value_rank or 0)

    def _norm_elements(self, key_width: int) -> int:
        if self.qk_norm is None:
            return 0
        return self.qk_norm.activation_elements(key_width)


class BlockDiagonalAttention(AttentionConfig):
    """Head i reads only slice i of the input, X_i (T × D/H), through square matrices.

    The projections are block-diagonal, and the heads are joined without an output matrix; this is
    the attention of the lecture notes this project began with.
    """

    kind: Literal["block_diagonal"] = "block_diagonal"
    heads: Size
    scale: float | None = None

    def build(self, width: int, cross: bool = False) -> Attention:
        return _attention_class(cross)(
            query=BlockDiagonalProjection(width, self.heads),
            key=BlockDiagonalProjection(width, self.heads),
            value=BlockDiagonalProjection(width, self.heads),
            output=nn.Identity(),
            query_norm=nn.Identity(),
            key_norm=nn.Identity(),
            scale=self.scale,
        )

    def parameters(self, width: int) -> int:
        return self.query_macs(width) + self.key_value_macs(width)

    def query_macs(self, width: int) -> int:
        return self.heads * self.key_width(width) ** 2

    def key_value_macs(self, width: int) -> int:
        return 2 * self.heads * self.key_width(width) ** 2


def _attention_class(cross: bool) -> type[Attention]:
    if cross:
        return CrossAttention
    return Attention


def _does_not_divide(heads: int, width: int) -> str:
    below = width // heads * heads
    nearest = f"{heads}"
    if below:
        nearest = f"{below}, {below + heads}"
    return f"heads={heads} must divide width={width}; nearest widths: {nearest}"
