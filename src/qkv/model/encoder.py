"""Encoder-only: every position sees the whole text (embeddings, sentiment, masked tokens)."""

from typing import Literal

from pydantic import model_validator
from torch import Tensor, nn

from qkv.attention import Mask
from qkv.model.config import Config, Size
from qkv.model.embedding import Embedding
from qkv.model.output import Output
from qkv.model.stack import Stack
from qkv.model.view import padding_mask, real_lengths


class EncoderOnly(Config):
    """The shape of an encoder-only model.

    `length` is the number of positions a learned table has; other schemes read further. Of a text
    the first `cut` tokens are read, or as many as that length if it is not given.
    """

    kind: Literal["encoder_only"] = "encoder_only"
    length: Size
    max_length: Size | None = None
    embedding: Embedding
    encoder: Stack
    output: Output

    @model_validator(mode="after")
    def _output_fits(self) -> "EncoderOnly":
        self.output.fit(self.encoder.width, self.encoder.input_width)
        return self

    @property
    def context_length(self) -> int:
        """How many tokens of a text are read."""
        return self.length if self.max_length is None else min(self.max_length, self.length)

    def build(self) -> "Encoder":
        return Encoder(self)

    def parameters(self) -> int:
        width, vocabulary = self.encoder.width, self.embedding.vocabulary
        ends = self.embedding.parameters(self.encoder.input_width)
        ends += self.output.parameters(width, vocabulary)
        return ends + self.encoder.parameters(self.length)


class Encoder(nn.Module):
    """Token ids to what the output makes of their context-aware embeddings."""

    def __init__(self, config: EncoderOnly) -> None:
        super().__init__()
        width = config.encoder.width
        self.config = config
        self.embedding = config.embedding.build(config.encoder.input_width)
        self.encoder = config.encoder.build(config.length)
        self.output = config.output.build(width, config.embedding.vocabulary)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        token_types: Tensor | None = None,
        mask: Mask | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """ids (B, T) whose first lengths[b] are real -> the output's answer."""
        states = self.encode(ids, lengths, token_types, mask, positions)
        return self.output(states, real_lengths(ids, lengths), self.embedding.weight)

    def encode(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        token_types: Tensor | None = None,
        mask: Mask | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The context-aware embedding of each position, (B, T, D)."""
        x = self.embedding(ids, token_types)
        return self.encoder(x, padding_mask(ids, lengths, mask), positions)
