"""The feed-forward network of a layer: up to a wider space, an activation, and down again.

It treats each position by itself: (B, T, D) -> (B, T, D).
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.model.config import PartConfig, Size
from qkv.model.norm import Dropout, count_parameters


class FeedForward(nn.Module):
    """down(activation(up(x)))"""

    def __init__(
        self, up: nn.Module, activation: nn.Module, down: nn.Module, dropout: float
    ) -> None:
        super().__init__()
        self.up = up
        self.activation = activation
        self.down = down
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))


class GatedFeedForward(FeedForward):
    """down(activation(gate(x)) × up(x)) (Shazeer 2020, "GLU variants improve Transformer")"""

    def __init__(
        self,
        gate: nn.Module,
        up: nn.Module,
        activation: nn.Module,
        down: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__(up, activation, down, dropout)
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))


class SquaredReLU(nn.Module):
    """max(0, x)²"""

    def forward(self, x: Tensor) -> Tensor:
        squares: Tensor = _SquaredReLU.apply(x)  # type: ignore[no-untyped-call]
        return squares


class _SquaredReLU(torch.autograd.Function):
    """max(0, x)² with one saved tensor: its gradient, 2·max(0, x), needs only max(0, x).

    Composed of relu and a product, autograd would save two.
    """

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        context.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(context: Any, *grad_outputs: Tensor) -> Tensor:
        (positive,) = context.saved_tensors
        grad: Tensor = (grad_outputs[0] * positive).mul_(2.0)
        return grad


class FeedForwardConfig(PartConfig):
    """A feed-forward network. A variant needs `kind`, `width` (of its hidden layer) and `build`."""

    if TYPE_CHECKING:
        width: int
        bias: bool

    def build(self, model_width: int, dropout: float) -> nn.Module:
        """The module: (B, T, model_width) -> (B, T, model_width)."""
        raise NotImplementedError

    def parameters(self, model_width: int) -> int:
        """How many parameters `build` makes."""
        return count_parameters(lambda: self.build(model_width, dropout=0.0))

    def macs(self, model_width: int) -> int:
        """Multiply–accumulates of one position; by default one for each parameter."""
        return self.parameters(model_width)

    def activation_elements(self) -> int:
        """Elements that autograd saves per position, without the input; 0 if not known."""
        return 0


class _Ungated(FeedForwardConfig):
    """One matrix up, one down."""

    width: Size
    bias: bool = True

    def activation(self) -> nn.Module:
        raise NotImplementedError

    def activation_elements(self) -> int:
        return 2 * self.width  # before and after the activation

    def build(self, model_width: int, dropout: float) -> nn.Module:
        up = nn.Linear(model_width, self.width, self.bias)
        down = nn.Linear(self.width, model_width, self.bias)
        return FeedForward(up, self.activation(), down, dropout)

    def parameters(self, model_width: int) -> int:
        return 2 * model_width * self.width + self.bias * (self.width + model_width)

    def macs(self, model_width: int) -> int:
        return 2 * model_width * self.width


class _Gated(_Ungated):
    """A second matrix up, whose activation gates the first."""

    bias: bool = False

    def activation_elements(self) -> int:
        return 4 * self.width  # gate, its activation, up, and their product

    def build(self, model_width: int, dropout: float) -> nn.Module:
        up = nn.Linear(model_width, self.width, self.bias)
        gate = nn.Linear(model_width, self.width, self.bias)
        down = nn.Linear(self.width, model_width, self.bias)
        return GatedFeedForward(gate, up, self.activation(), down, dropout)

    def parameters(self, model_width: int) -> int:
        return 3 * model_width * self.width + self.bias * (2 * self.width + model_width)

    def macs(self, model_width: int) -> int:
        return 3 * model_width * self.width


class ReLU(_Ungated):
    """max(0, x) (Vaswani et al. 2017)."""

    kind: Literal["relu"] = "relu"

    def activation(self) -> nn.Module:
        return nn.ReLU()

    def activation_elements(self) -> int:
        return self.width  # the output alone tells where the gradient is 0


class GELU(_Ungated):
    """x·Φ(x), exactly or by its tanh approximation (Hendrycks and Gimpel 2016)."""

    kind: Literal["gelu"] = "gelu"
    tanh: bool = False

    def activation(self) -> nn.Module:
        return _gelu(self.tanh)


class ReLU2(_Ungated):
    """max(0, x)² (So et al. 2021, "Primer")."""

    kind: Literal["relu2"] = "relu2"

    def activation(self) -> nn.Module:
        return SquaredReLU()


class SiLU(_Ungated):
    """x·σ(x) (Elfwing et al. 2017), also called swish."""

    kind: Literal["silu"] = "silu"

    def activation(self) -> nn.Module:
        return nn.SiLU()


class ReGLU(_Gated):
    """Gated by max(0, x); with one matrix for both it is max(0, x)²."""

    kind: Literal["reglu"] = "reglu"

    def activation(self) -> nn.Module:
        return nn.ReLU()


class SwiGLU(_Gated):
    """Gated by x·σ(x)."""

    kind: Literal["swiglu"] = "swiglu"

    def activation(self) -> nn.Module:
        return nn.SiLU()


class GEGLU(_Gated):
    """Gated by GELU."""

    kind: Literal["geglu"] = "geglu"
    tanh: bool = False

    def activation(self) -> nn.Module:
        return _gelu(self.tanh)


def _gelu(tanh: bool) -> nn.Module:
    if tanh:
        return nn.GELU(approximate="tanh")
    return nn.GELU()
