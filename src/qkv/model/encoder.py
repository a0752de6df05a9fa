"""Encoder-only models: every position attends to the full text (BERT, sentence embeddings)."""

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

    `length` is the size of a learned position table; other position schemes can read longer
    texts. Texts are truncated to `max_length` tokens, or to `length` if it is not given.
    """

    kind: Literal["encoder_only"] = "encoder_only"
    length: Size
    max_length: Size | None = None
    embedding: Embedding
    encoder: Stack
    output: Output

    @model_validator(mode="after")
    def _check_output(self) -> "EncoderOnly":
        self.output.check(self.encoder.width, self.encoder.input_width)
        return self

    @property
    def context_length(self) -> int:
        """How many tokens of a text are read."""
        if self.max_length is None:
            return self.length
        return min(self.max_length, self.length)

    def build(self) -> "Encoder":
        return Encoder(self)

    def parameters(self) -> int:
        total = self.embedding.parameters(self.encoder.input_width)
        total += self.encoder.parameters(self.length)
        total += self.output.parameters(self.encoder.width, self.embedding.vocabulary)
        return total


class Encoder(nn.Module):
    """Token ids to the output of their contextual embeddings: logits or a vector per text."""

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
        """ids (B, T), of which the first lengths[b] are real -> the output's result."""
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
        """The contextual embedding of each position, (B, T, D)."""
        x = self.embedding(ids, token_types)
        return self.encoder(x, padding_mask(ids, lengths, mask), positions)
