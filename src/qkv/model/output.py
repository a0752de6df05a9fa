"""What a model answers with: the next token, a masked token, a label, or a vector for the text.

Every output reads the states (B, T, D), the true lengths (B,) and the embedding table (V, D),
which it may share.
"""

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from qkv.model.choice import Choice, Share, Size
from qkv.model.dropout import Dropout
from qkv.model.embedding import Times
from qkv.model.norm import LayerNorm, Norm
from qkv.model.pooling import Mean, Pooling


class NextToken(Choice):
    """A score for each token of the vocabulary at each position: (B, T, V).

    Tied: the embedding table itself is the matrix (Press and Wolf 2017).
    """

    kind: Literal["next_token"] = "next_token"
    tied: bool = True
    bias: bool = False
    multiplier: float = 1.0

    def build(self, width: int, vocabulary: int) -> nn.Module:
        kind = TiedScores if self.tied else OwnScores
        return kind(width, vocabulary, self.bias, self.multiplier)

    def parameters(self, width: int, vocabulary: int) -> int:
        return (not self.tied) * vocabulary * width + self.bias * vocabulary

    def multiplications(self, width: int, vocabulary: int) -> int:
        """Of one position, in matrix products."""
        return width * vocabulary

    def kept(self, width: int) -> int:
        """Numbers kept of one position for the backward pass."""
        return width


class MaskedToken(Choice):
    """BERT's head: a dense layer, GELU and a norm, then a score for each token: (B, T, V)."""

    kind: Literal["masked_token"] = "masked_token"
    tied: bool = True
    norm: Norm = LayerNorm()

    def build(self, width: int, vocabulary: int) -> nn.Module:
        kind = TiedScores if self.tied else OwnScores
        return Transformed(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), self.norm.build(width)),
            kind(width, vocabulary, bias=True, multiplier=1.0),
        )

    def parameters(self, width: int, vocabulary: int) -> int:
        matrix = (not self.tied) * vocabulary * width
        return width * (width + 1) + self.norm.parameters(width) + matrix + vocabulary

    def multiplications(self, width: int, vocabulary: int) -> int:
        return width * (width + vocabulary)

    def kept(self, width: int) -> int:
        return 3 * width + self.norm.kept(width)


class TextVector(Choice):
    """One vector for the whole text: (B, D), of length 1 if `unit`.

    Dense: through a matrix and tanh first, as BERT's pooler does.
    """

    kind: Literal["text_vector"] = "text_vector"
    pooling: Pooling = Mean()
    dense: bool = False
    unit: bool = True

    def build(self, width: int, vocabulary: int) -> nn.Module:
        change = nn.Sequential(nn.Linear(width, width), nn.Tanh()) if self.dense else nn.Identity()
        return Pooled(self.pooling, change, Unit() if self.unit else nn.Identity())

    def parameters(self, width: int, vocabulary: int) -> int:
        return self.dense * width * (width + 1)

    def multiplications(self, width: int, vocabulary: int) -> int:
        return 0  # once a text, not once a position

    def kept(self, width: int) -> int:
        return 0


class Classify(Choice):
    """A score for each label: (B, labels), by a small network on the text's vector."""

    kind: Literal["classify"] = "classify"
    labels: Annotated[tuple[str, ...], Field(strict=False)]  # JSON has lists
    pooling: Pooling = Mean()
    hidden: Size | None = None
    dropout: Share = 0.0

    @field_validator("labels")
    @classmethod
    def _two_different(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise ValueError(f"a classifier needs two or more different labels, given {labels}")
        return labels

    def build(self, width: int, vocabulary: int) -> nn.Module:
        last = nn.Linear(self.hidden or width, len(self.labels))
        change: nn.Module = nn.Identity()
        if self.hidden is not None:
            change = nn.Sequential(nn.Linear(width, self.hidden), nn.Tanh())
        return Pooled(self.pooling, change, nn.Sequential(Dropout(self.dropout), last))

    def parameters(self, width: int, vocabulary: int) -> int:
        inner = self.hidden or width
        first = 0 if self.hidden is None else (width + 1) * self.hidden
        return first + (inner + 1) * len(self.labels)

    def multiplications(self, width: int, vocabulary: int) -> int:
        return 0

    def kept(self, width: int) -> int:
        return 0


Output = Annotated[NextToken | MaskedToken | TextVector | Classify, Field(discriminator="kind")]


class TiedScores(nn.Module):
    """states · tableᵀ, with the embedding's table."""

    def __init__(self, width: int, vocabulary: int, bias: bool, multiplier: float) -> None:
        super().__init__()
        self.scale = nn.Identity() if multiplier == 1.0 else Times(multiplier)
        self.bias = nn.Parameter(torch.empty(vocabulary)) if bias else None

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return F.linear(*self.factors(states, table))

    def factors(self, states: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """States, table and bias, for a loss that multiplies them in parts."""
        return self.scale(states), table, self.bias


class OwnScores(TiedScores):
    """states · tableᵀ, with a table of its own."""

    def __init__(self, width: int, vocabulary: int, bias: bool, multiplier: float) -> None:
        super().__init__(width, vocabulary, bias, multiplier)
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def factors(self, states: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return super().factors(states, self.weight)


class Transformed(nn.Module):
    """Each state changed before it is scored."""

    def __init__(self, change: nn.Module, output: TiedScores) -> None:
        super().__init__()
        self.change, self.output = change, output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        return F.linear(*self.factors(states, table))

    def factors(self, states: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.output.factors(self.change(states), table)


class Pooled(nn.Module):
    """One answer a text, from the pooled states."""

    def __init__(self, pooling: Pooling, change: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.pooling, self.change, self.output = pooling, change, output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        if not states.shape[1]:  # no position at all: give pooling one to pass over
            states = F.pad(states, (0, 0, 0, 1))
        return self.answer(self.pooling.pool(states, lengths))

    def answer(self, vectors: Tensor) -> Tensor:
        """What is said of texts whose pooled states (B, D) are known already."""
        return self.output(self.change(vectors))


class Unit(nn.Module):
    """Length 1, so that a dot product is a cosine."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)
