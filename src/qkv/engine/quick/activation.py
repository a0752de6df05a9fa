"""What others call an activation."""

from torch import nn


def name_of(activation: nn.Module) -> str | None:
    """relu, gelu, gelu_tanh or silu; none of these has no name here."""
    match activation:
        case nn.ReLU():
            return "relu"
        case nn.GELU(approximate="tanh"):
            return "gelu_tanh"
        case nn.GELU():
            return "gelu"
        case nn.SiLU():
            return "silu"
    return None
