"""A gated feed-forward whose gate and values come from one product."""

from torch import Tensor, nn

from qkv.engine.quick.linear import Build
from qkv.model.feed_forward import GatedFeedForward


class JoinedFeedForward(nn.Module):
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
