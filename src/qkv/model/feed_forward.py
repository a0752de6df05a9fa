"""The feed-forward part: each position widened, bent by an activation, and narrowed again."""

from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from qkv.model.config import Config, Size
from qkv.model.norm import Dropout


class FeedForward(nn.Module):
    """down(activation(up(x)))"""

    def __init__(
        self, up: nn.Module, activation: nn.Module, down: nn.Module, dropout: float
    ) -> None:
        super().__init__()
        self.up, self.activation, self.down = up, activation, down
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
    def forward(self, x: Tensor) -> Tensor:
        squared: Tensor = _SquaredReLU.apply(x)  # type: ignore[no-untyped-call]
        return squared


class _SquaredReLU(torch.autograd.Function):
    """max(0, x)² whose slope, 2·max(0, x), needs only one number kept instead of two."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        context.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(context: Any, *upstream: Tensor) -> Tensor:
        (positive,) = context.saved_tensors
        slope: Tensor = (upstream[0] * positive).mul_(2.0)
        return slope


class _Plain(Config):
    """One matrix up, one down."""

    width: Size
    bias: bool = True

    def activation(self) -> nn.Module:
        raise NotImplementedError

    def kept(self) -> int:
        """Numbers kept for the backward pass: before and after the activation."""
        return 2 * self.width

    def build(self, model_width: int, dropout: float) -> nn.Module:
        up = nn.Linear(model_width, self.width, self.bias)
        down = nn.Linear(self.width, model_width, self.bias)
        return FeedForward(up, self.activation(), down, dropout)

    def parameters(self, model_width: int) -> int:
        return 2 * model_width * self.width + self.bias * (self.width + model_width)

    def multiplications(self, model_width: int) -> int:
        """Of one position, in matrix products."""
        return 2 * model_width * self.width


class _Gated(_Plain):
    """A second matrix up, whose activation gates the first."""

    bias: bool = False

    def kept(self) -> int:
        """Gate, activation, up, and their product."""
        return 4 * self.width

    def build(self, model_width: int, dropout: float) -> nn.Module:
        up, gate = (nn.Linear(model_width, self.width, self.bias) for _ in range(2))
        down = nn.Linear(self.width, model_width, self.bias)
        return GatedFeedForward(gate, up, self.activation(), down, dropout)

    def parameters(self, model_width: int) -> int:
        return 3 * model_width * self.width + self.bias * (2 * self.width + model_width)

    def multiplications(self, model_width: int) -> int:
        return 3 * model_width * self.width


class ReLU(_Plain):
    """max(0, x): the paper's."""

    kind: Literal["relu"] = "relu"

    def activation(self) -> nn.Module:
        return nn.ReLU()

    def kept(self) -> int:
        return self.width  # its result tells where it was cut off


class GELU(_Plain):
    """x·Φ(x), exactly or by its tanh approximation (Hendrycks and Gimpel 2016)."""

    kind: Literal["gelu"] = "gelu"
    tanh: bool = False

    def activation(self) -> nn.Module:
        return nn.GELU(approximate="tanh" if self.tanh else "none")


class ReLU2(_Plain):
    """max(0, x)² (So et al. 2021, "Primer")."""

    kind: Literal["relu2"] = "relu2"

    def activation(self) -> nn.Module:
        return SquaredReLU()


class SiLU(_Plain):
    """x·σ(x) (Elfwing et al. 2017), also called swish."""

    kind: Literal["silu"] = "silu"

    def activation(self) -> nn.Module:
        return nn.SiLU()


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
        return nn.GELU(approximate="tanh" if self.tanh else "none")


FeedForwardChoice = Annotated[
    ReLU | GELU | ReLU2 | SiLU | SwiGLU | GEGLU, Field(discriminator="kind")
]
