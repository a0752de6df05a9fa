"""Decoder-only models: each position attends to itself and what came before (GPT)."""

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

    `length` is the size of a learned position table and the default capacity of a cache; other
    position schemes can read longer texts.
    """

    kind: Literal["decoder_only"] = "decoder_only"
    length: Size
    embedding: Embedding
    decoder: Stack
    output: Output = NextToken()

    @model_validator(mode="after")
    def _check_parts(self) -> "DecoderOnly":
        self.embedding.reject_token_types()
        self.output.check(self.decoder.width, self.decoder.input_width)
        return self

    def build(self) -> "Decoder":
        return Decoder(self)

    def parameters(self) -> int:
        total = self.embedding.parameters(self.decoder.input_width)
        total += self.decoder.parameters(self.length)
        total += self.output.parameters(self.decoder.width, self.embedding.vocabulary)
        return total


class Decoder(nn.Module):
    """Token ids to logits of the token that follows each of them."""

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
        """ids (B, T) -> logits of the token after each position, (B, T, V).

        With a cache, ids follow the positions in it and are added to it.
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
        """The hidden states that the output reads, (B, T, D)."""
        reject_lengths_with_cache(cache, lengths)
        x = self.embedding(ids)
        return self.decoder(x, Mask.causal() & padding_mask(ids, lengths, mask), positions, cache)

    def empty_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """A cache for `capacity` positions, by default the model's length."""
        if capacity is None:
            capacity = self.config.length
        device = self.embedding.weight.device
        return self.config.decoder.empty_cache(batch, capacity, device, self.embedding.dtype)
