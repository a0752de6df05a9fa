"""Token embeddings: ids (B, T) -> vectors (B, T, D)."""

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

    def reject_token_types(self) -> None:
        """Raise a ValueError if there are token types."""
        if self.token_types:
            raise ValueError(
                f"token_types={self.token_types}: only an encoder-only model reads token types"
            )

    def build(self, width: int) -> "TokenEmbedding":
        if self.token_types:
            return TokenTypeEmbedding(self, width)
        return TokenEmbedding(self, width)

    def parameters(self, width: int) -> int:
        return (self.vocabulary + self.token_types) * width


class Scale(nn.Module):
    """Multiplication by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class TokenEmbedding(nn.Module):
    """The row of `weight` (V, D) for each id."""

    def __init__(self, config: Embedding, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocabulary, width))
        self.scale = Scale(width**0.5) if config.scaled else nn.Identity()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the vectors."""
        return self.weight.dtype

    def forward(self, ids: Tensor, token_types: Tensor | None = None) -> Tensor:
        """ids (B, T) -> (B, T, D)"""
        if token_types is not None:
            raise ShapeError("token_types were given, but this model has none")
        return self._look_up(ids)

    def _look_up(self, ids: Tensor) -> Tensor:
        if ids.dim() != 2 or ids.is_floating_point():
            raise ShapeError(
                f"token ids are integers of shape (B, T), "
                f"but these are {ids.dtype} of shape {tuple(ids.shape)}"
            )
        try:
            vectors = F.embedding(ids, self.weight)  # (B, T, D)
        except IndexError:
            raise ShapeError(
                f"token ids go from 0 to {len(self.weight) - 1}, "
                f"but these from {int(ids.min())} to {int(ids.max())}"
            ) from None
        return self.scale(vectors)


class TokenTypeEmbedding(TokenEmbedding):
    """Also adds a vector for each token's type, such as the first or second sentence; default 0."""

    def __init__(self, config: Embedding, width: int) -> None:
        super().__init__(config, width)
        self.types = nn.Parameter(torch.empty(config.token_types, width))

    def forward(self, ids: Tensor, token_types: Tensor | None = None) -> Tensor:
        if token_types is None:
            token_types = torch.zeros_like(ids)
        return self._look_up(ids) + F.embedding(token_types, self.types)
