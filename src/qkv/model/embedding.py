"""From token ids to vectors, and the sharing of that table with the output."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.errors import ShapeError
from qkv.model.config import Config, Count, Size


class Embedding(Config):
    """A vector for each of `vocabulary` tokens, times √D if `scaled`, plus one for its type."""

    vocabulary: Size
    scaled: bool = False
    token_types: Count = 0

    def expect_no_types(self) -> None:
        if self.token_types:
            raise ValueError(
                f"token_types={self.token_types}: only an encoder-only model reads token types"
            )

    def build(self, width: int) -> "TokenEmbedding":
        return TokenTypeEmbedding(self, width) if self.token_types else TokenEmbedding(self, width)

    def parameters(self, width: int) -> int:
        return (self.vocabulary + self.token_types) * width


class Scale(nn.Module):
    """Everything times one number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class TokenEmbedding(nn.Module):
    """ids (B, T) -> (B, T, D)"""

    def __init__(self, choice: Embedding, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(choice.vocabulary, width))
        self.scale = Scale(width**0.5) if choice.scaled else nn.Identity()

    @property
    def dtype(self) -> torch.dtype:
        """Of the vectors it gives."""
        return self.weight.dtype

    def forward(self, ids: Tensor, token_types: Tensor | None = None) -> Tensor:
        if token_types is not None:
            raise ShapeError("this model has no token types, but some were given")
        return self._look_up(ids)

    def _look_up(self, ids: Tensor) -> Tensor:
        if ids.dim() != 2 or ids.is_floating_point():
            raise ShapeError(
                f"token ids are whole numbers of shape (B, T), "
                f"but these are {ids.dtype} of shape {tuple(ids.shape)}"
            )
        try:
            rows = F.embedding(ids, self.weight)  # (B, T, D)
        except IndexError:
            raise ShapeError(
                f"token ids go from 0 to {len(self.weight) - 1}, "
                f"but these from {int(ids.min())} to {int(ids.max())}"
            ) from None
        return self.scale(rows)


class TokenTypeEmbedding(TokenEmbedding):
    """Also adds a vector for the type of each token (say, which of two sentences); default 0."""

    def __init__(self, choice: Embedding, width: int) -> None:
        super().__init__(choice, width)
        self.types = nn.Parameter(torch.empty(choice.token_types, width))

    def forward(self, ids: Tensor, token_types: Tensor | None = None) -> Tensor:
        token_types = torch.zeros_like(ids) if token_types is None else token_types
        return self._look_up(ids) + F.embedding(token_types, self.types)
