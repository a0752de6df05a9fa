"""Self-attention whose queries, keys and values come from one product."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from qkv.attention import join_heads, soft_cap, split_heads
from qkv.engine.optimized.linear import Applied, Build, Packed
from qkv.model.attention import Attention, HeadProjection
from qkv.model.feed_forward import FeedForward, GatedFeedForward, SquaredReLU
from qkv.model.norm import ResidualAdd, UnitOffsetRMSNorm
from qkv.model.output import TiedLogits
from qkv.model.stack import Block, NoCrossAttention
from qkv.model.view import View

# FOLDED engine/quick/block: A layer without the parts that do nothing.
# FOLDED engine/quick/activation: What others call an activation.
# FOLDED engine/quick/feed_forward: Feed-forwards in fewer steps.
# FOLDED engine/quick/norm: Root-mean-square norms in fewer steps than torch's, which is not
#   fused on a CPU.
# FOLDED engine/quick/projection: Queries, keys or values for every head, by a product that is
#   known beforehand.
# FOLDED engine/quick/scores: The scores of all tokens, with a product of its own in place of
#   the embedding's table.
# FOLDED engine/quick/same_weights: A module of another class with the same tensors and other
#   parts.


class FusedQKVAttention(nn.Module):
    """Equal to an `Attention` whose projections all read the whole input."""

    def __init__(self, plain: Attention, build: Build) -> None:
        super().__init__()
        parts = projections(plain)
        self.project = build(*parts)
        self.widths = [part.out_features for part in parts]
        self.asked_and_values = [self.widths[0] + self.widths[1], self.widths[2]]
        self.heads = [part.heads for part in parts]
        self.query_norm, self.key_norm = plain.query_norm, plain.key_norm
        self.core, self.output = plain.core, plain.output

    def forward(self, x: Tensor, view: View) -> Tensor:
        q, k, v = (
            split_heads(part, heads)
            for part, heads in zip(
                torch.split(self.project(x), self.widths, -1), self.heads, strict=True
            )
        )
        q = view.rope.rotate(self.query_norm(q))  # (B, H, T, E)
        k = view.rope.rotate(self.key_norm(k))  # (B, K, T, E)
        k, v = view.cache.append(k, v)  # (B, K, S, E)
        return self.output(join_heads(self.core(q, k, v, view.mask)))


class FusedQKVRopeAttention(FusedQKVAttention):
    """Queries and keys of equal width and without norms, turned to their positions together."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        H, K, _ = self.heads
        asked, v = torch.split(self.project(x), self.asked_and_values, -1)
        q, k = torch.split(view.rope.rotate(split_heads(asked, H + K)), [H, K], dim=1)
        k, v = view.cache.append(k, split_heads(v, K))  # (B, K, S, E)
        return self.output(join_heads(self.core(q, k, v, view.mask)))


def joined(plain: Attention, build: Build) -> nn.Module:
    """The attention with one product instead of three, if its projections allow it."""
    if not projections(plain):
        return plain
    bare = isinstance(plain.query_norm, nn.Identity) and isinstance(plain.key_norm, nn.Identity)
    return (FusedQKVRopeAttention if bare else FusedQKVAttention)(plain, build)


def projections(plain: Attention) -> list[HeadProjection]:
    """Those to queries, keys and values if each of them is one matrix; else none."""
    parts = [plain.query, plain.key, plain.value]
    whole = [part for part in parts if isinstance(part, HeadProjection)]
    return whole if len(whole) == len(parts) else []


class PreNormBlock(Block):
    """x + part(norm(x)), twice."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = x + self.attention(self.attention_in(x), view)
        return x + self.feed_forward(self.feed_forward_in(x))


class PostNormBlock(Block):
    """norm(x + part(x)), twice."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        x = self.attention_out(self.attention(x, view).add_(x))
        return self.feed_forward_out(self.feed_forward(x).add_(x))


class PreNormCrossBlock(Block):
    """x + part(norm(x)), three times: the second part reads the source."""

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


def plain_kind(block: Block) -> type[Block]:
    """The kind of block that does the same in fewer steps; its own kind if there is none."""
    cross = not isinstance(block.cross, NoCrossAttention)
    names = ("attention", "cross", "feed_forward") if cross else ("attention", "feed_forward")

    def all_are(kind: type[nn.Module], place: str) -> bool:
        return all(type(getattr(block, f"{name}_{place}")) is kind for name in names)

    if type(block) is not Block or not all_are(ResidualAdd, "join"):
        return type(block)
    if all_are(nn.Identity, "out"):
        return PreNormCrossBlock if cross else PreNormBlock
    if all_are(nn.Identity, "in"):
        return PostNormCrossBlock if cross else PostNormBlock
    return Block


def name_of(activation: nn.Module) -> str | None:
    """relu, gelu, gelu_tanh, silu or relu2; none of these has no name here."""
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


BENT = {  # as oneDNN calls them; its relu is left out, as it makes 0 of what is no number
    "gelu": Applied("gelu", "none"),
    "gelu_tanh": Applied("gelu", "tanh"),
    "silu": Applied("swish"),
}


class FusedActivationFeedForward(nn.Module):
    """Equal to a `FeedForward` that drops nothing; the first product comes bent already."""

    @staticmethod
    def fits(plain: FeedForward) -> bool:
        return name_of(plain.activation) in BENT

    def __init__(self, plain: FeedForward, build: type[Packed]) -> None:
        super().__init__()
        name = name_of(plain.activation)
        assert name is not None
        self.up, self.down = map(build, up_and_down(plain))
        self.activation, self.how = plain.activation, BENT[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up.bent(x, self.how, self.activation))


def up_and_down(plain: FeedForward) -> tuple[nn.Linear, nn.Linear]:
    """The two matrices of a feed-forward."""
    up, down = plain.up, plain.down
    assert isinstance(up, nn.Linear)
    assert isinstance(down, nn.Linear)
    return up, down


class FusedGatedFeedForward(nn.Module):
    """Equal to a `GatedFeedForward` that drops nothing."""

    def __init__(self, plain: GatedFeedForward, build: Build) -> None:
        super().__init__()
        gate, up = plain.gate, plain.up
        assert isinstance(gate, nn.Linear)
        assert isinstance(up, nn.Linear)
        self.widen = build(gate, up)
        self.activation, self.down = plain.activation, plain.down

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.widen(x).chunk(2, dim=-1)
        return self.down(self.activation(gate).mul_(up))


class FastRMSNorm(nn.Module):
    """x ÷ √(mean of x² + eps) × gain; a single row has its mean taken as one dot product."""

    def __init__(self, plain: nn.RMSNorm) -> None:
        super().__init__()
        gain = plain.weight.detach()
        self.register_buffer("gain", gain + 1.0 if isinstance(plain, UnitOffsetRMSNorm) else gain)
        self.gain: Tensor
        self.eps = torch.finfo(gain.dtype).eps if plain.eps is None else plain.eps

    def forward(self, x: Tensor) -> Tensor:
        width = len(self.gain)
        if x.numel() == width:
            row = x.view(width)
            return (x * self.gain).mul_((float(torch.dot(row, row)) / width + self.eps) ** -0.5)
        size = (x * x).mean(dim=-1, keepdim=True).add_(self.eps).rsqrt_()
        return (x * size).mul_(self.gain)


class LinearToHeads(nn.Module):
    """Equal to a `ToHeads`."""

    def __init__(self, product: nn.Module, heads: int) -> None:
        super().__init__()
        self.product, self.heads = product, heads

    def forward(self, x: Tensor) -> Tensor:
        return split_heads(self.product(x), self.heads)


class Scores(nn.Module):
    """Equal to `TiedScores` or `OwnScores`, whichever table the product was made of."""

    def __init__(self, plain: TiedLogits, product: nn.Module) -> None:
        super().__init__()
        self.scale, self.product, self.cap = plain.scale, product, plain.cap

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        scores: Tensor = self.product(self.scale(states))
        return scores if self.cap is None else soft_cap(scores, self.cap)


def same_weights(
    part: nn.Module, kind: type[nn.Module], twin_of: Callable[[nn.Module], nn.Module]
) -> nn.Module:
    """The part as that class; its tensors and settings are shared, its own parts are twins."""
    copy = kind.__new__(kind)
    copy.__dict__ = dict(part.__dict__)
    copy._modules = {
        name: None if child is None else twin_of(child) for name, child in part._modules.items()
    }
    return copy
