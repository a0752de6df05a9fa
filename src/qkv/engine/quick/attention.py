"""Self-attention whose queries, keys and values come from one product."""

import torch
from torch import Tensor, nn

from qkv.attention import join_heads, split_heads
from qkv.engine.quick.linear import Build
from qkv.model.attention import Attention
from qkv.model.projection import ToHeads
from qkv.model.view import View


class JoinedAttention(nn.Module):
    """Equal to an `Attention` whose projections all read the whole input."""

    def __init__(self, plain: Attention, build: Build) -> None:
        super().__init__()
        parts = projections(plain)
        self.project = build(*parts)
        self.widths = [part.out_features for part in parts]
        self.asked_and_values = [self.widths[0] + self.widths[1], self.widths[2]]
        self.heads = [part.heads for part in parts]
        self.query_norm, self.key_norm = plain.query_norm, plain.key_norm
        self.mix, self.output = plain.mix, plain.output

    def forward(self, x: Tensor, view: View) -> Tensor:
        q, k, v = (
            split_heads(part, heads)
            for part, heads in zip(
                torch.split(self.project(x), self.widths, -1), self.heads, strict=True
            )
        )
        q = view.rotation.turn(self.query_norm(q))  # (B, H, T, E)
        k = view.rotation.turn(self.key_norm(k))  # (B, K, T, E)
        k, v = view.slot.append(k, v)  # (B, K, S, E)
        return self.output(join_heads(self.mix(q, k, v, view.mask)))


class JoinedTurnAttention(JoinedAttention):
    """Queries and keys of equal width and without norms, turned to their positions together."""

    def forward(self, x: Tensor, view: View) -> Tensor:
        H, K, _ = self.heads
        asked, v = torch.split(self.project(x), self.asked_and_values, -1)
        q, k = torch.split(view.rotation.turn(split_heads(asked, H + K)), [H, K], dim=1)
        k, v = view.slot.append(k, split_heads(v, K))  # (B, K, S, E)
        return self.output(join_heads(self.mix(q, k, v, view.mask)))


def joined(plain: Attention, build: Build) -> nn.Module:
    """The attention with one product instead of three, if its projections allow it."""
    if not projections(plain):
        return plain
    bare = isinstance(plain.query_norm, nn.Identity) and isinstance(plain.key_norm, nn.Identity)
    return (JoinedTurnAttention if bare else JoinedAttention)(plain, build)


def projections(plain: Attention) -> list[ToHeads]:
    """Those to queries, keys and values if each of them is one matrix; else none."""
    parts = [plain.query, plain.key, plain.value]
    whole = [part for part in parts if isinstance(part, ToHeads)]
    return whole if len(whole) == len(parts) else []
