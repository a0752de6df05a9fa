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
        return ToVocabulary(width, vocabulary, self.tied, self.bias, self.multiplier)

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
        return Transformed(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), self.norm.build(width)),
            ToVocabulary(width, vocabulary, self.tied, bias=True, multiplier=1.0),
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
    labels: tuple[str, ...]
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
        return Pooled(self.pooling, change, nn.Sequential(nn.Dropout(self.dropout), last))

    def parameters(self, width: int, vocabulary: int) -> int:
        inner = self.hidden or width
        first = 0 if self.hidden is None else (width + 1) * self.hidden
        return first + (inner + 1) * len(self.labels)

    def multiplications(self, width: int, vocabulary: int) -> int:
        return 0

    def kept(self, width: int) -> int:
        return 0


Output = Annotated[NextToken | MaskedToken | TextVector | Classify, Field(discriminator="kind")]


class ToVocabulary(nn.Module):
    """states · tableᵀ × multiplier + bias; a table of its own unless tied."""

    def __init__(
        self, width: int, vocabulary: int, tied: bool, bias: bool, multiplier: float
    ) -> None:
        super().__init__()
        own, shift = torch.empty(vocabulary, width), torch.empty(vocabulary)
        self.weight = None if tied else nn.Parameter(own)
        self.bias = nn.Parameter(shift) if bias else None
        self.multiplier = multiplier

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        if self.multiplier != 1.0:
            states = states * self.multiplier
        return F.linear(states, table if self.weight is None else self.weight, self.bias)


class Transformed(nn.Module):
    def __init__(self, change: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.change, self.output = change, output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        states = self.output(self.change(states), lengths, table)
        return states


class Pooled(nn.Module):
    def __init__(self, pooling: Pooling, change: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.pooling, self.change, self.output = pooling, change, output

    def forward(self, states: Tensor, lengths: Tensor, table: Tensor) -> Tensor:
        if not states.shape[1]:  # texts without a single position: one that is not real
            states = F.pad(states, (0, 0, 0, 1))
        states = self.output(self.change(self.pooling.pool(states, lengths)))
        return states


class Unit(nn.Module):
    """Length 1, so that a dot product is a cosine."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)
