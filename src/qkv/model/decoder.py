"""Decoder-only: a position sees itself and what came before (the next token)."""

from typing import Literal

from pydantic import model_validator
from torch import Tensor, nn

from qkv.attention import KVCache, Mask
from qkv.model.config import Config, Size
from qkv.model.embedding import Embedding
from qkv.model.output import NextToken, Output
from qkv.model.stack import Stack
from qkv.model.view import padding_mask, real_lengths, reject_lengths_with_cache


class DecoderOnly(Config):
    """The shape of a decoder-only model.

    `length` is the number of positions a learned table has and a cache sets aside if nothing else
    is asked; other schemes read further.
    """

    kind: Literal["decoder_only"] = "decoder_only"
    length: Size
    embedding: Embedding
    decoder: Stack
    output: Output = NextToken()

    @model_validator(mode="after")
    def _parts_fit(self) -> "DecoderOnly":
        self.embedding.expect_no_types()
        self.output.fit(self.decoder.width, self.decoder.input_width)
        return self

    def build(self) -> "Decoder":
        return Decoder(self)

    def parameters(self) -> int:
        width, vocabulary = self.decoder.width, self.embedding.vocabulary
        ends = self.embedding.parameters(self.decoder.input_width)
        ends += self.output.parameters(width, vocabulary)
        return ends + self.decoder.parameters(self.length)


class Decoder(nn.Module):
    """Token ids to scores of the token that follows each of them."""

    def __init__(self, config: DecoderOnly) -> None:
        super().__init__()
        width = config.decoder.width
        self.config = config
        self.embedding = config.embedding.build(config.decoder.input_width)
        self.decoder = config.decoder.build(config.length)
        self.output = config.output.build(width, config.embedding.vocabulary)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """ids (B, T) -> scores of the token after each position, (B, T, V).

        With a cache, ids follow the positions it holds, and are added to it.
        """
        states = self.states(ids, lengths, mask, positions, cache)
        return self.output(states, real_lengths(ids, lengths), self.embedding.weight)

    def states(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        mask: Mask | None = None,
        positions: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """What the output reads at each position, (B, T, D)."""
        reject_lengths_with_cache(cache, lengths)
        x = self.embedding(ids)
        return self.decoder(x, Mask.causal() & padding_mask(ids, lengths, mask), positions, cache)

    def empty_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """Room for `capacity` positions, the model's whole length if not given."""
        table = self.embedding
        room = self.config.length if capacity is None else capacity
        return self.config.decoder.empty_cache(batch, room, table.weight.device, table.dtype)
