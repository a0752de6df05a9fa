"""Output heads: next-token logits, masked-token logits, label logits, or one vector per text.

Every output reads the states (B, T, D), the true lengths (B,) and the embedding weight (V, D),
which it may share. Poolings turn the states of a text into one vector.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, field_validator
from torch import Tensor, nn

from qkv.attention import soft_cap
from qkv.errors import ConfigError
from qkv.model.config import Config, Fraction, PartConfig, Size
from qkv.model.embedding import Scale
from qkv.model.norm import (
    Dropout,
    LayerNorm,
    NormConfig,
    build_norm,
    norm_parameters,
)


class Pooling(PartConfig):
    """From a vector for each position to one for the text. A variant needs `kind` and `pool`."""

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """states (B, T, D), lengths (B,) -> (B, D); zeros for an empty text."""
        raise NotImplementedError


class Mean(Pooling):
    """The average of all positions."""

    kind: Literal["mean"] = "mean"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        total = (states * _is_real(states, lengths)).sum(dim=1)  # (B, D)
        return total / lengths.clamp(min=1)[:, None]


class First(Pooling):
    """The first position, where BERT has its [CLS] token."""

    kind: Literal["first"] = "first"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        return states[:, 0] * (lengths > 0)[:, None]  # (B, D)


class Last(Pooling):
    """The last real position: the only one of a decoder that attends to the full text."""

    kind: Literal["last"] = "last"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        rows = torch.arange(len(states), device=states.device)
        return states[rows, lengths.clamp(min=1) - 1] * (lengths > 0)[:, None]  # (B, D)


class Max(Pooling):
    """The largest value of each feature."""

    kind: Literal["max"] = "max"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        real_states = states.masked_fill(~_is_real(states, lengths), -torch.inf)
        return real_states.amax(dim=1).masked_fill((lengths == 0)[:, None], 0.0)  # (B, D)


def _is_real(states: Tensor, lengths: Tensor) -> Tensor:
    positions = torch.arange(states.shape[1], device=states.device)
    return (positions < lengths[:, None])[..., None]  # (B, T, 1)


ActivationName = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]

ACTIVATIONS: dict[ActivationName, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class OutputConfig(Config):
    """The base of the four output heads."""

    def check(self, width: int, embedding_width: int) -> None:
        """Raise a ConfigError if states and embeddings of these widths do not fit."""

    def build(self, width: int, vocabulary: int) -> nn.Module:
        """The module: forward(states, lengths, embedding weight)."""
        raise NotImplementedError

    def parameters(self, width: int, vocabulary: int) -> int:
        """How many parameters `build` makes."""
        raise NotImplementedError

    def macs(self, width: int, vocabulary: int) -> int:
        """Multiply–accumulates of one position; 0 for what is done once a text."""
        return 0

    def activation_elements(self, width: int) -> int:
        """Elements that autograd saves per position."""
        return 0


class NextToken(OutputConfig):
    """A logit for each token of the vocabulary at each position: (B, T, V).

    tied: the embedding weight itself is the matrix (Press and Wolf 2017). cap: logits approach
    ±cap along a tanh (soft-capping, Gemma Team 2024).
    """

    kind: Literal["next_token"] = "next_token"
    tied: bool = True
    bias: bool = False
    multiplier: float = 1.0
    cap: PositiveFloat | None = None

    def check(self, width: int, embedding_width: int) -> None:
        if self.tied and width != embedding_width:
            raise ConfigError(
                f"a tied output multiplies states of width={width} by the embedding weight, which "
                f"has embedding_width={embedding_width}; they must be equal"
            )

    def build(self, width: int, vocabulary: int) -> nn.Module:
        logits_class = _logits_class(self.tied)
        return logits_class(width, vocabulary, self.bias, self.multiplier, self.cap)

    def parameters(self, width: int, vocabulary: int) -> int:
        return (not self.tied) * vocabulary * width + self.bias * vocabulary

    def macs(self, width: int, vocabulary: int) -> int:
        return width * vocabulary

    def activation_elements(self, width: int) -> int:
        return width


class MaskedToken(OutputConfig):
    """BERT's head: a dense layer, an activation and a norm, then logits (B, T, V).

    dense_width: the width of the dense layer's result, where the embeddings have that width.
    """

    kind: Literal["masked_token"] = "masked_token"
    tied: bool = True
    norm: NormConfig = LayerNorm()
    bias: bool = True  # of the dense layer
    logit_bias: bool = True
    activation: ActivationName = "gelu"
    dense_width: Size | None = None

    def check(self, width: int, embedding_width: int) -> None:
        dense_width = self.dense_width or width
        if self.tied and dense_width != embedding_width:
            raise ConfigError(
                f"a tied output multiplies vectors of width {dense_width} by the embedding weight, "
                f"which has width {embedding_width}; set dense_width={embedding_width}"
            )

    def build(self, width: int, vocabulary: int) -> nn.Module:
        dense_width = self.dense_width or width
        dense = nn.Linear(width, dense_width, self.bias)
        activation = ACTIVATIONS[self.activation]()
        change = nn.Sequential(dense, activation, self.norm.build(dense_width))
        logits_class = _logits_class(self.tied)
        logits = logits_class(dense_width, vocabulary, self.logit_bias, multiplier=1.0)
        return PredictionHead(change, logits)

    def parameters(self, width: int, vocabulary: int) -> int:
        dense_width = self.dense_width or width
        logits = vocabulary * ((not self.tied) * dense_width + self.logit_bias)
        return dense_width * (width + self.bias) + self.norm.parameters(dense_width) + logits

    def macs(self, width: int, vocabulary: int) -> int:
        return (self.dense_width or width) * (width + vocabulary)

    def activation_elements(self, width: int) -> int:
        dense_width = self.dense_width or width
        return width + 2 * dense_width + self.norm.activation_elements(dense_width)


class TextVector(OutputConfig):
    """One vector for the text: (B, D), of length 1 with `normalize`.

    dense: through a matrix and tanh first, as BERT's pooler does.
    """

    kind: Literal["text_vector"] = "text_vector"
    pooling: Pooling = Mean()
    dense: bool = False
    normalize: bool = True

    def build(self, width: int, vocabulary: int) -> nn.Module:
        change: nn.Module = nn.Identity()
        if self.dense:
            change = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        output: nn.Module = nn.Identity()
        if self.normalize:
            output = UnitLength()
        return PooledOutput(self.pooling, change, output)

    def parameters(self, width: int, vocabulary: int) -> int:
        return self.dense * width * (width + 1)


class Classify(OutputConfig):
    """A logit for each label: (B, labels), from the pooled states of a text.

    hidden: through a layer of that width first, with its activation and an optional norm.
    """

    kind: Literal["classify"] = "classify"
    labels: Annotated[tuple[str, ...], Field(strict=False)]  # JSON has lists
    pooling: Pooling = Mean()
    hidden: Size | None = None
    hidden_bias: bool = True
    activation: ActivationName = "tanh"
    norm: NormConfig | None = None
    dropout: Fraction = 0.0

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise ValueError(f"a classifier needs two or more different labels, given {labels}")
        return labels

    def build(self, width: int, vocabulary: int) -> nn.Module:
        last = nn.Linear(self.hidden or width, len(self.labels))
        change: nn.Module = nn.Identity()
        if self.hidden is not None:
            dense = nn.Linear(width, self.hidden, self.hidden_bias)
            layers = [dense, ACTIVATIONS[self.activation]()]
            if self.norm is not None:
                layers.append(build_norm(self.norm, self.hidden))
            change = nn.Sequential(*layers)
        return PooledOutput(self.pooling, change, nn.Sequential(Dropout(self.dropout), last))

    def parameters(self, width: int, vocabulary: int) -> int:
        last_width = self.hidden or width
        total = (last_width + 1) * len(self.labels)
        if self.hidden is not None:
            total += (width + self.hidden_bias) * last_width
            total += norm_parameters(self.norm, last_width)
        return total


Output = Annotated[NextToken | MaskedToken | TextVector | Classify, Field(discriminator="kind")]

LossAndGrads = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""A summed loss, and its gradients by states, weight and bias."""


class LazyLogits(NamedTuple):
    """What logits are made of, for a loss that multiplies them chunk by chunk.

    fused_loss: a faster way to the summed cross-entropy of targets (N,), all real, with label
    smoothing and an R-Drop weight, and its gradients; see `qkv.training.loss`.
    """

    states: Tensor
    table: Tensor
    bias: Tensor | None
    cap: float | None
    fused_loss: "Callable[[LazyLogits, Tensor, float, float], LossAndGrads] | None" = None

    def logits(self) -> Tensor:
        """states · tableᵀ + bias, soft-capped if there is a cap."""
        logits = F.linear(self.states, self.table, self.bias)
        if self.cap is None:
            return logits
        return soft_cap(logits, self.cap)


class TiedLogits(nn.Module):
    """states · tableᵀ, with the embedding weight as the table."""

    def __init__(
        self,
        width: int,
        vocabulary: int,
        bias: bool,
        multiplier: float,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.scale = nn.Identity() if multiplier == 1.0 else Scale(multiplier)
        self.bias = nn.Parameter(torch.empty(vocabulary)) if bias else None
        self.cap = cap

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return self.lazy(states, table).logits()

    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        """The factors of the logits."""
        return LazyLogits(self.scale(states), table, self.bias, self.cap)


class UntiedLogits(TiedLogits):
    """states · weightᵀ, with a matrix of its own."""

    def __init__(
        self,
        width: int,
        vocabulary: int,
        bias: bool,
        multiplier: float,
        cap: float | None = None,
    ) -> None:
        super().__init__(width, vocabulary, bias, multiplier, cap)
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        return super().lazy(states, self.weight)


def _logits_class(tied: bool) -> type[TiedLogits]:
    if tied:
        return TiedLogits
    return UntiedLogits


class PredictionHead(nn.Module):
    """Logits of transformed states, as in BERT's masked-language-model head."""

    def __init__(self, change: nn.Module, output: TiedLogits) -> None:
        super().__init__()
        self.change = change
        self.output = output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return self.output(self.change(states), lengths, table)

    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        """The factors of the logits."""
        return self.output.lazy(self.change(states), table)


class PooledOutput(nn.Module):
    """One result per text, from the pooled states."""

    def __init__(self, pooling: Pooling, change: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.pooling = pooling
        self.change = change
        self.output = output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return self.from_pooled(self.pool(states, lengths))

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The states of each text as one vector, (B, D)."""
        if not states.shape[1]:  # poolings index positions, so an empty batch gets a padding one
            states = F.pad(states, (0, 0, 0, 1))
        return self.pooling.pool(states, lengths)

    def from_pooled(self, vectors: Tensor) -> Tensor:
        """The output for pooled states (B, D)."""
        return self.output(self.change(vectors))


class UnitLength(nn.Module):
    """Scales each vector to length 1, so that a dot product is a cosine."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)
