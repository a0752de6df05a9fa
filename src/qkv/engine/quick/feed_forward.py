"""Feed-forwards in fewer steps."""

from torch import Tensor, nn

from qkv.engine.quick.activation import name_of
from qkv.engine.quick.linear import Applied, Build, Packed
from qkv.model.feed_forward import FeedForward, GatedFeedForward

BENT = {  # as oneDNN calls them; its relu is left out, as it makes 0 of what is no number
    "gelu": Applied("gelu", "none"),
    "gelu_tanh": Applied("gelu", "tanh"),
    "silu": Applied("swish"),
}


class BentFeedForward(nn.Module):
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
