"""Attention with weights: projections to heads, the kernel, and the way back to the model width."""

from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat
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
from qkv.model.config import Config, Size
from qkv.model.norm import Norm, build_norm, norm_parameters
from qkv.model.view import View

# FOLDED model/projection: Three ways to make queries, keys or values for every head: (B, T, D)
#   -> (B, H, T, E).
# FOLDED model/heads: How attention is divided into heads: the paper's way and the notes' way.


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
        self.query, self.key, self.value = query, key, value
        self.query_norm, self.key_norm = query_norm, key_norm
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
        q = self.query_norm(self.query(x))  # (B, H, T, E)
        k, v = view.cross_cache.get_or_compute(_present(view.memory), self._keys_and_values)
        return self.output(join_heads(self.core(q, k, v, view.memory_mask)))

    def _keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_norm(self.key(memory)), self.value(memory)


class AttentionCore(nn.Module):
    """softmax(Q·Kᵀ·scale + mask)·V, fused; a hook on `steps` makes it show every intermediate."""

    def __init__(self, scale: float | None, cap: float | None = None) -> None:
        super().__init__()
        self.scale, self.cap = scale, cap
        self.hook_point = StepsHook()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if self.hook_point.has_hooks:
            return self.hook_point(reference(q, k, v, mask, self.scale, self.cap)).output
        return attend(q, k, v, mask, self.scale, self.cap)


class StepsHook(nn.Module):
    """Passes the steps on. Whoever hooks it sees them, and may put others in their place."""

    @property
    def has_hooks(self) -> bool:
        return bool(self._forward_hooks or self._forward_pre_hooks)

    def forward(self, steps: AttentionSteps) -> AttentionSteps:
        return steps


def _present(memory: Tensor | None) -> Tensor:
    if memory is None:
        raise ShapeError("a decoder with cross attention needs the encoder's output as memory")
    return memory


class HeadProjection(nn.Linear):
    """The paper's projection: every head reads the whole input."""

    def __init__(self, width: int, heads: int, head_width: int, bias: bool) -> None:
        super().__init__(width, heads * head_width, bias)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(super().forward(x), self.heads)


class BlockDiagonalProjection(nn.Module):
    """The notes' projection: head i reads slice i of the input through its own square matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, width // heads, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        return project_block_diagonal(x, self.weight)


class LowRankProjection(nn.Module):
    """The notes' cheaper value: X·V_down·V_up, through a narrow space of the chosen rank."""

    def __init__(self, width: int, rank: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(width, rank))
        self.up = nn.Parameter(torch.empty(rank, heads * head_width))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(project_low_rank(x, self.down, self.up), self.heads)


class MultiHead(Config):
    """The paper's heads; fewer key/value heads are shared by groups of query heads.

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
    qk_norm: Norm | None = None
    scale: float | None = None
    cap: PositiveFloat | None = None  # no scaled score is larger

    def fit(self, width: int) -> None:
        if self.head_width is None and width % self.heads:
            raise ConfigError(_does_not_divide("heads", self.heads, width))
        if self.heads % self.num_kv_heads:
            raise ConfigError(f"kv_heads={self.kv_heads} must divide heads={self.heads}")

    @property
    def num_kv_heads(self) -> int:
        """Key/value heads."""
        return self.kv_heads or self.heads

    def key_width(self, width: int) -> int:
        """E: the width of one head's queries and keys."""
        return self.head_width or width // self.heads

    def value_head_width(self, width: int) -> int:
        """The width of one head's values."""
        return self.value_width or self.key_width(width)

    def build(self, width: int, cross: bool = False) -> Attention:
        keys, values, shared = (
            self.key_width(width),
            self.value_head_width(width),
            self.num_kv_heads,
        )
        return (CrossAttention if cross else Attention)(
            query=HeadProjection(width, self.heads, keys, self.bias),
            key=HeadProjection(width, shared, keys, self.bias),
            value=HeadProjection(width, shared, values, self.bias)
            if self.value_rank is None
            else LowRankProjection(width, self.value_rank, shared, values),
            output=nn.Linear(self.heads * values, width, self.output_bias),
            query_norm=build_norm(self.qk_norm, keys),
            key_norm=build_norm(self.qk_norm, keys),
            scale=self.scale,
            cap=self.cap,
        )

    def parameters(self, width: int) -> int:
        keys, values, shared = (
            self.key_width(width),
            self.value_head_width(width),
            self.num_kv_heads,
        )
        matrices = self.own_multiplications(width) + self.source_multiplications(width)
        value_bias = 0 if self.value_rank else shared * values
        biases = self.bias * ((self.heads + shared) * keys + value_bias)
        return (
            matrices + biases + self.output_bias * width + 2 * norm_parameters(self.qk_norm, keys)
        )

    def own_multiplications(self, width: int) -> int:
        """Of one query position, in projections: to queries and back to the model width."""
        return width * self.heads * (self.key_width(width) + self.value_head_width(width))

    def source_multiplications(self, width: int) -> int:
        """Of one key position, in projections: to keys and values."""
        keys, values = (
            self.num_kv_heads * w for w in (self.key_width(width), self.value_head_width(width))
        )
        if self.value_rank is None:
            return width * (keys + values)
        return width * keys + self.value_rank * (width + values)

    def pair_multiplications(self, width: int) -> int:
        """Of one query with one key, over all heads: the score, and its share of the value."""
        return self.heads * (self.key_width(width) + self.value_head_width(width))

    def cache_numbers(self, width: int) -> int:
        """What a cache keeps of one position."""
        return self.num_kv_heads * (self.key_width(width) + self.value_head_width(width))

    def own_kept(self, width: int) -> int:
        """Numbers kept of one query position for the backward pass.

        Queries that a norm or a change of width has laid out head by head make the kernel answer
        in that order too, and joining the heads then needs a copy.
        """
        keys, values = self.key_width(width), self.value_head_width(width)
        normed = 0 if self.qk_norm is None else self.qk_norm.kept(keys)
        wide = max(keys, values)
        copied = values if self.qk_norm or keys != values else 0
        return self.heads * (wide + normed + wide + copied + 1)

    def source_kept(self, width: int) -> int:
        """Numbers kept of one key position for the backward pass."""
        keys, values = self.key_width(width), self.value_head_width(width)
        normed = 0 if self.qk_norm is None else self.qk_norm.kept(keys)
        return self.num_kv_heads * (2 * max(keys, values) + normed) + (self.value_rank or 0)


class BlockDiagonalAttention(Config):
    """The notes' heads: X_i (n × d_model/h) for head i, square weights, joined without a matrix."""

    kind: Literal["block_diagonal"] = "block_diagonal"
    heads: Size
    scale: float | None = None

    def fit(self, width: int) -> None:
        if width % self.heads:
            raise ConfigError(_does_not_divide("heads", self.heads, width))

    @property
    def num_kv_heads(self) -> int:
        return self.heads

    def key_width(self, width: int) -> int:
        return width // self.heads

    def value_head_width(self, width: int) -> int:
        return width // self.heads

    def build(self, width: int, cross: bool = False) -> Attention:
        query, key, value = (BlockDiagonalProjection(width, self.heads) for _ in range(3))
        join, query_norm, key_norm = (nn.Identity() for _ in range(3))
        kind = CrossAttention if cross else Attention
        return kind(query, key, value, join, query_norm, key_norm, self.scale)

    def parameters(self, width: int) -> int:
        return self.own_multiplications(width) + self.source_multiplications(width)

    def own_multiplications(self, width: int) -> int:
        return self.heads * self.key_width(width) ** 2

    def source_multiplications(self, width: int) -> int:
        return 2 * self.heads * self.key_width(width) ** 2

    def pair_multiplications(self, width: int) -> int:
        return 2 * width

    def cache_numbers(self, width: int) -> int:
        return 2 * width

    def own_kept(self, width: int) -> int:
        return 2 * width + self.heads

    def source_kept(self, width: int) -> int:
        return 2 * width


AttentionChoice = Annotated[MultiHead | BlockDiagonalAttention, Field(discriminator="kind")]


def _does_not_divide(name: str, parts: int, width: int) -> str:
    below = width // parts * parts
    nearest = f"{below}, {below + parts}" if below else f"{parts}"
    return f"{name}={parts} must divide width={width}; nearest widths: {nearest}"
