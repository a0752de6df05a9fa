"""Feed-forwards in fewer steps."""

from torch import Tensor, nn

from qkv.engine.quick.linear import Bend, Build, Packed
from qkv.model.feed_forward import FeedForward, GatedFeedForward


class BentFeedForward(nn.Module):
    """Equal to a `FeedForward` that drops nothing; the first product comes bent already."""

    def __init__(self, plain: FeedForward, build: type[Packed]) -> None:
        super().__init__()
        up, down, how = plain.up, plain.down, bend_of(plain.activation)
        assert isinstance(up, nn.Linear)
        assert isinstance(down, nn.Linear)
        assert how is not None
        self.up, self.down = build(up), build(down)
        self.activation, self.how = plain.activation, how

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up.bent(x, self.how, self.activation))


def bend_of(activation: nn.Module) -> Bend | None:
    """What oneDNN calls the activation, if it has it."""
    match activation:
        case nn.ReLU():
            return Bend("relu")
        case nn.GELU():
            return Bend("gelu", activation.approximate)
        case nn.SiLU():
            return Bend("swish")
    return None


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
