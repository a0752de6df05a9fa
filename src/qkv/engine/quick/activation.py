"""What others call an activation."""

from torch import nn

from qkv.model.feed_forward import SquaredReLU


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
