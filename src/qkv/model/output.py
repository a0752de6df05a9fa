"""What a model answers with: the next token, a masked token, a label, or a vector for the text.

Every output reads the states (B, T, D), the true lengths (B,) and the embedding table (V, D),
which it may share.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveFloat, field_validator
from torch import Tensor, nn

from qkv.attention import soft_cap
from qkv.errors import ConfigError
from qkv.model.config import Config, Fraction, Size
from qkv.model.embedding import Scale
from qkv.model.norm import Dropout, LayerNorm, Norm, build_norm, norm_parameters

# FOLDED model/pooling: From a vector for each position to one vector for the text, looking at
#   real positions only.


class Mean(Config):
    """The average of all positions."""

    kind: Literal["mean"] = "mean"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """states (B, T, D), lengths (B,) -> (B, D); zeros for an empty text."""
        real = _real(states, lengths)
        return (states * real).sum(dim=1) / lengths.clamp(min=1)[:, None]  # (B, D)


class First(Config):
    """The first position, where BERT keeps its summary."""

    kind: Literal["first"] = "first"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        return states[:, 0] * (lengths > 0)[:, None]  # (B, D)


class Last(Config):
    """The last real position: the only one of a decoder that has seen the whole text."""

    kind: Literal["last"] = "last"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        rows = torch.arange(len(states), device=states.device)
        return states[rows, lengths.clamp(min=1) - 1] * (lengths > 0)[:, None]  # (B, D)


class Max(Config):
    """The largest value of each feature."""

    kind: Literal["max"] = "max"

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        hidden = states.masked_fill(~_real(states, lengths), -torch.inf)
        return hidden.amax(dim=1).masked_fill((lengths == 0)[:, None], 0.0)  # (B, D)


Pooling = Annotated[Mean | First | Last | Max, Field(discriminator="kind")]


def _real(states: Tensor, lengths: Tensor) -> Tensor:
    places = torch.arange(states.shape[1], device=states.device)
    return (places < lengths[:, None])[..., None]  # (B, T, 1)


ActivationName = Literal["gelu", "gelu_tanh", "relu", "silu", "tanh"]

ACTIVATIONS: dict[ActivationName, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}


class NextToken(Config):
    """A score for each token of the vocabulary at each position: (B, T, V).

    Tied: the embedding table itself is the matrix (Press and Wolf 2017). Capped: no score is
    larger than that, they near it along a tanh.
    """

    kind: Literal["next_token"] = "next_token"
    tied: bool = True
    bias: bool = False
    multiplier: float = 1.0
    cap: PositiveFloat | None = None

    def fit(self, width: int, embedding_width: int) -> None:
        """Raise a ConfigError if a tied table has another width than the states."""
        if self.tied and width != embedding_width:
            raise ConfigError(
                f"a tied output scores states of width={width} with the embedding table, which "
                f"has embedding_width={embedding_width}; they must be equal"
            )

    def build(self, width: int, vocabulary: int) -> nn.Module:
        kind = TiedLogits if self.tied else UntiedLogits
        return kind(width, vocabulary, self.bias, self.multiplier, self.cap)

    def parameters(self, width: int, vocabulary: int) -> int:
        return (not self.tied) * vocabulary * width + self.bias * vocabulary

    def multiplications(self, width: int, vocabulary: int) -> int:
        """Of one position, in matrix products."""
        return width * vocabulary

    def kept(self, width: int) -> int:
        """Numbers kept of one position for the backward pass."""
        return width


class MaskedToken(Config):
    """BERT's head: a dense layer, an activation and a norm, then a score for each token: (B, T, V).

    narrow: the width of the dense layer's result, where the embedding table has that width.
    """

    kind: Literal["masked_token"] = "masked_token"
    tied: bool = True
    norm: Norm = LayerNorm()
    bias: bool = True  # of the dense layer
    logit_bias: bool = True
    activation: ActivationName = "gelu"
    dense_width: Size | None = None

    def fit(self, width: int, embedding_width: int) -> None:
        scored = self.dense_width or width
        if self.tied and scored != embedding_width:
            raise ConfigError(
                f"a tied output scores vectors of width {scored} with the embedding table, which "
                f"has width {embedding_width}; set dense_width={embedding_width}"
            )

    def build(self, width: int, vocabulary: int) -> nn.Module:
        kind, scored = (TiedLogits if self.tied else UntiedLogits), self.dense_width or width
        dense = nn.Linear(width, scored, self.bias)
        return PredictionHead(
            nn.Sequential(dense, ACTIVATIONS[self.activation](), self.norm.build(scored)),
            kind(scored, vocabulary, self.logit_bias, multiplier=1.0),
        )

    def parameters(self, width: int, vocabulary: int) -> int:
        scored = self.dense_width or width
        scores = vocabulary * ((not self.tied) * scored + self.logit_bias)
        return scored * (width + self.bias) + self.norm.parameters(scored) + scores

    def multiplications(self, width: int, vocabulary: int) -> int:
        return (self.dense_width or width) * (width + vocabulary)

    def kept(self, width: int) -> int:
        scored = self.dense_width or width
        return width + 2 * scored + self.norm.kept(scored)


class TextVector(Config):
    """One vector for the whole text: (B, D), of length 1 if `unit`.

    Dense: through a matrix and tanh first, as BERT's pooler does.
    """

    kind: Literal["text_vector"] = "text_vector"
    pooling: Pooling = Mean()
    dense: bool = False
    normalize: bool = True

    def fit(self, width: int, embedding_width: int) -> None:
        """Any width will do."""

    def build(self, width: int, vocabulary: int) -> nn.Module:
        change = nn.Sequential(nn.Linear(width, width), nn.Tanh()) if self.dense else nn.Identity()
        return PooledOutput(self.pooling, change, UnitLength() if self.normalize else nn.Identity())

    def parameters(self, width: int, vocabulary: int) -> int:
        return self.dense * width * (width + 1)

    def multiplications(self, width: int, vocabulary: int) -> int:
        return 0  # once a text, not once a position

    def kept(self, width: int) -> int:
        return 0


class Classify(Config):
    """A score for each label: (B, labels), by a small network on the text's vector.

    hidden: through a layer of that width first, with its activation and perhaps a norm.
    """

    kind: Literal["classify"] = "classify"
    labels: Annotated[tuple[str, ...], Field(strict=False)]  # JSON has lists
    pooling: Pooling = Mean()
    hidden: Size | None = None
    hidden_bias: bool = True
    activation: ActivationName = "tanh"
    norm: Norm | None = None
    dropout: Fraction = 0.0

    @field_validator("labels")
    @classmethod
    def _two_different(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise ValueError(f"a classifier needs two or more different labels, given {labels}")
        return labels

    def fit(self, width: int, embedding_width: int) -> None:
        """Any width will do."""

    def build(self, width: int, vocabulary: int) -> nn.Module:
        last = nn.Linear(self.hidden or width, len(self.labels))
        change: nn.Module = nn.Identity()
        if self.hidden is not None:
            dense = nn.Linear(width, self.hidden, self.hidden_bias)
            norm = () if self.norm is None else (build_norm(self.norm, self.hidden),)
            change = nn.Sequential(dense, ACTIVATIONS[self.activation](), *norm)
        return PooledOutput(self.pooling, change, nn.Sequential(Dropout(self.dropout), last))

    def parameters(self, width: int, vocabulary: int) -> int:
        inner, first = self.hidden or width, 0
        if self.hidden is not None:
            first = (width + self.hidden_bias) * inner + norm_parameters(self.norm, inner)
        return first + (inner + 1) * len(self.labels)

    def multiplications(self, width: int, vocabulary: int) -> int:
        return 0

    def kept(self, width: int) -> int:
        return 0


Output = Annotated[NextToken | MaskedToken | TextVector | Classify, Field(discriminator="kind")]

LossAndGrads = tuple[Tensor, Tensor, Tensor, Tensor | None]

"""A summed loss, and its slopes by states, table and bias."""


class LazyLogits(NamedTuple):
    """What scores are made of, for a loss that multiplies them in parts.

    quicker: a quicker way to the summed cross-entropy of targets (N,), all real, with a smoothing
    and an agreement, and its slopes; see `qkv.tasks.loss`.
    """

    states: Tensor
    table: Tensor
    bias: Tensor | None
    cap: float | None
    fused_loss: "Callable[[LazyLogits, Tensor, float, float], LossAndGrads] | None" = None

    def logits(self) -> Tensor:
        """states · tableᵀ + bias, capped if there is a cap."""
        plain = F.linear(self.states, self.table, self.bias)
        return plain if self.cap is None else soft_cap(plain, self.cap)


class TiedLogits(nn.Module):
    """states · tableᵀ, with the embedding's table."""

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
        return LazyLogits(self.scale(states), table, self.bias, self.cap)


class UntiedLogits(TiedLogits):
    """states · tableᵀ, with a table of its own."""

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


class PredictionHead(nn.Module):
    """Each state changed before it is scored."""

    def __init__(self, change: nn.Module, output: TiedLogits) -> None:
        super().__init__()
        self.change, self.output = change, output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return self.output(self.change(states), lengths, table)

    def lazy(self, states: Tensor, table: Tensor) -> LazyLogits:
        return self.output.lazy(self.change(states), table)


class PooledOutput(nn.Module):
    """One answer a text, from the pooled states."""

    def __init__(self, pooling: Pooling, change: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.pooling, self.change, self.output = pooling, change, output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return self.from_pooled(self.pool(states, lengths))

    def pool(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The states of each text as one vector, (B, D)."""
        if not states.shape[1]:  # no position at all: give pooling one to pass over
            states = F.pad(states, (0, 0, 0, 1))
        return self.pooling.pool(states, lengths)

    def from_pooled(self, vectors: Tensor) -> Tensor:
        """What is said of texts whose pooled states (B, D) are known already."""
        return self.output(self.change(vectors))


class UnitLength(nn.Module):
    """Length 1, so that a dot product is a cosine."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)
