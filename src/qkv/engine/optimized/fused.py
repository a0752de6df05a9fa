"""Parts of a model in fewer operations: fused projections, blocks without empty parts, fast norms.

Each module here equals one of `qkv.model` without dropout, and is built from it. On a CPU a small
model spends much of its time between the matrix products, so every operation left out counts.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from qkv.attention import join_heads, soft_cap, split_heads
from qkv.engine.optimized.linear import BuildLinear, PackedLinear, PostOp
from qkv.model import (
    Attention,
    Block,
    FeedForward,
    GatedFeedForward,
    HeadProjection,
    NoCrossAttention,
    ResidualAdd,
    SquaredReLU,
    TiedLogits,
    UnitOffsetRMSNorm,
    View,
)


class FusedQKVAttention(nn.Module):
    """Self-attention whose queries, keys and values come from one matrix product."""

    def __init__(self, plain: Attention, build: BuildLinear) -> None:
        super().__init__()
        projections = qkv_projections(plain)
        self.project = build(*projections)
        self.widths = [projection.out_features for projection in projections]
        self.qk_v_widths = [self.widths[0] + self.widths[1], self.widths[2]]
        self.heads = [projection.heads for projection in projections]
        self.query_norm = plain.query_norm
        self.key_norm = plain.key_norm
        self.core = plain.core
        self.output = plain.output

    def forward(self, x: Tensor, view: View) -> Tensor:
        q, k, v = torch.split(self.project(x), self.widths, -1)
        q = split_heads(q, self.heads[0])
        k = split_heads(k, self.heads[1])
        v = split_heads(v, self.heads[2])
        q = view.rope.rotate(self.query_norm(q))  # (B, H, T, E)
        k = view.rope.rotate(self.key_norm(k))  # (B, K, T, E)
        k, v = view.cache.append(k, v)  # (B, K, S, E)
        return self.output(join_heads(self.core(q, k, v, view.mask)))


class FusedQKVRopeAttention(FusedQKVAttention):
    """Also rotates queries and keys together, which have equal widths and no norms."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        H, K, _ = self.heads
        qk, v = torch.split(self.project(x), self.qk_v_widths, -1)
        q, k = torch.split(view.rope.rotate(split_heads(qk, H + K)), [H, K], dim=1)
        k, v = view.cache.append(k, split_heads(v, K))  # (B, K, S, E)
        return self.output(join_heads(self.core(q, k, v, view.mask)))


def fuse_attention(plain: Attention, build: BuildLinear) -> nn.Module:
    """The attention with one product instead of three, if its projections allow it."""
    if not qkv_projections(plain):
        return plain
    if isinstance(plain.query_norm, nn.Identity) and isinstance(plain.key_norm, nn.Identity):
        return FusedQKVRopeAttention(plain, build)
    return FusedQKVAttention(plain, build)


def qkv_projections(plain: Attention) -> list[HeadProjection]:
    """Those to queries, keys and values if each of them is one matrix; else none."""
    parts = [plain.query, plain.key, plain.value]
    projections = [part for part in parts if isinstance(part, HeadProjection)]
    if len(projections) < len(parts):
        return []
    return projections


class PreNormBlock(Block):
    """x + part(norm(x)), twice."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = x + self.attention(self.attention_in(x), view)
        return x + self.feed_forward(self.feed_forward_in(x))


class PostNormBlock(Block):
    """norm(x + part(x)), twice."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        # In place: the parts' outputs are fresh tensors that nobody else holds.
        x = self.attention_out(self.attention(x, view).add_(x))
        return self.feed_forward_out(self.feed_forward(x).add_(x))


class PreNormCrossBlock(Block):
    """x + part(norm(x)), three times: the second part attends to the source."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = x + self.attention(self.attention_in(x), view)
        x = x + self.cross(self.cross_in(x), view)
        return x + self.feed_forward(self.feed_forward_in(x))


class PostNormCrossBlock(Block):
    """norm(x + part(x)), three times."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = self.attention_out(self.attention(x, view).add_(x))
        x = self.cross_out(self.cross(x, view).add_(x))
        return self.feed_forward_out(self.feed_forward(x).add_(x))


def block_class(block: Block) -> type[Block]:
    """The class that computes the same in fewer steps; the block's own if there is none."""
    has_cross = not isinstance(block.cross, NoCrossAttention)
    parts = ("attention", "cross", "feed_forward") if has_cross else ("attention", "feed_forward")

    def all_are(kind: type[nn.Module], suffix: str) -> bool:
        return all(type(getattr(block, f"{part}_{suffix}")) is kind for part in parts)

    if type(block) is not Block or not all_are(ResidualAdd, "join"):
        return type(block)
    # Pre-norm has nothing after its parts, post-norm nothing before them.
    if all_are(nn.Identity, "out"):
        return PreNormCrossBlock if has_cross else PreNormBlock
    if all_are(nn.Identity, "in"):
        return PostNormCrossBlock if has_cross else PostNormBlock
    return Block


def activation_name(activation: nn.Module) -> str | None:
    """relu, gelu, gelu_tanh, silu or relu2; None for any other activation."""
    match activation:
        case nn.ReLU():
            return "relu"
        case nn.GELU(approximate="tanh"):
            return "gelu_tanh"
        case nn.GELU():
            return "gelu"
        case nn.SiLU():
            return "silu"
        case SquaredReLU():
            return "relu2"
    return None


# Not relu: oneDNN's turns NaN into 0, which would hide a broken weight.
POST_OPS = {
    "gelu": PostOp("gelu", "none"),
    "gelu_tanh": PostOp("gelu", "tanh"),
    "silu": PostOp("swish"),
}


class FusedActivationFeedForward(nn.Module):
    """A `FeedForward` whose activation is applied by the first product."""

    @staticmethod
    def supports(plain: FeedForward) -> bool:
        return activation_name(plain.activation) in POST_OPS

    def __init__(self, plain: FeedForward, build: type[PackedLinear]) -> None:
        super().__init__()
        name = activation_name(plain.activation)
        assert name is not None
        up, down = up_down_linears(plain)
        self.up = build(up)
        self.down = build(down)
        self.activation = plain.activation
        self.post_op = POST_OPS[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up.forward_activated(x, self.post_op, self.activation))


def up_down_linears(plain: FeedForward) -> tuple[nn.Linear, nn.Linear]:
    """The two linear layers of a feed-forward."""
    assert isinstance(plain.up, nn.Linear)
    assert isinstance(plain.down, nn.Linear)
    return plain.up, plain.down


class FusedGatedFeedForward(nn.Module):
    """A `GatedFeedForward` whose gate and up projection are one product."""

    def __init__(self, plain: GatedFeedForward, build: BuildLinear) -> None:
        super().__init__()
        assert isinstance(plain.gate, nn.Linear)
        assert isinstance(plain.up, nn.Linear)
        self.gate_up = build(plain.gate, plain.up)
        self.activation = plain.activation
        self.down = plain.down

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up))


class FastRMSNorm(nn.Module):
    """x ÷ √(mean of x² + eps) × gain, in fewer steps than torch's, which is not fused on a CPU."""

    def __init__(self, plain: nn.RMSNorm) -> None:
        super().__init__()
        gain = plain.weight.detach()
        if isinstance(plain, UnitOffsetRMSNorm):
            gain = gain + 1.0
        self.register_buffer("gain", gain)
        self.gain: Tensor
        self.eps = torch.finfo(gain.dtype).eps if plain.eps is None else plain.eps

    def forward(self, x: Tensor) -> Tensor:
        width = len(self.gain)
        if x.numel() == width:  # one row: its mean square is one dot product
            row = x.view(width)
            return (x * self.gain).mul_((float(torch.dot(row, row)) / width + self.eps) ** -0.5)
        rstd = (x * x).mean(dim=-1, keepdim=True).add_(self.eps).rsqrt_()
        return (x * rstd).mul_(self.gain)


class OptimizedHeadProjection(nn.Module):
    """A `HeadProjection` with any linear layer."""

    def __init__(self, linear: nn.Module, heads: int) -> None:
        super().__init__()
        self.linear = linear
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(self.linear(x), self.heads)


class OptimizedLogits(nn.Module):
    """`TiedLogits` or `UntiedLogits` with any linear layer in place of the embedding table."""

    def __init__(self, plain: TiedLogits, linear: nn.Module) -> None:
        super().__init__()
        self.scale = plain.scale
        self.linear = linear
        self.cap = plain.cap

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.scale(states))
        if self.cap is None:
            return logits
        return soft_cap(logits, self.cap)


def copy_as(
    module: nn.Module, kind: type[nn.Module], convert: Callable[[nn.Module], nn.Module]
) -> nn.Module:
    """A copy of the module as that class, sharing its tensors, with converted children."""
    # Without __init__, which would allocate new parameters.
    copy = kind.__new__(kind)
    copy.__dict__ = dict(module.__dict__)
    copy._modules = {
        name: None if child is None else convert(child) for name, child in module._modules.items()
    }
    return copy
