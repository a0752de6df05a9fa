"""Encoder–decoder models: a decoder with cross attention to an encoded source (translation)."""

from typing import Literal

from pydantic import model_validator
from torch import Tensor, nn

from qkv.attention import KVCache, Mask
from qkv.model.config import Config, Size
from qkv.model.embedding import Embedding, TokenEmbedding
from qkv.model.output import NextToken
from qkv.model.stack import Stack
from qkv.model.view import padding_mask, real_lengths, reject_lengths_with_cache


class EncoderDecoder(Config):
    """The shape of an encoder–decoder model.

    Without `source` both texts share one embedding; with a tied output one table then serves three
    purposes, as in Vaswani et al. 2017.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    length: Size
    embedding: Embedding
    source: Embedding | None = None
    encoder: Stack
    decoder: Stack
    output: NextToken = NextToken()

    @model_validator(mode="after")
    def _check_parts(self) -> "EncoderDecoder":
        self.embedding.reject_token_types()
        if self.source is not None:
            self.source.reject_token_types()
        if self.encoder.width != self.decoder.width:
            raise ValueError(
                f"encoder.width={self.encoder.width} and decoder.width={self.decoder.width} "
                f"must be equal"
            )
        if self.source is None and self.encoder.input_width != self.decoder.input_width:
            raise ValueError(
                f"encoder.embedding_width={self.encoder.embedding_width} and "
                f"decoder.embedding_width={self.decoder.embedding_width} "
                "must be equal to share one embedding"
            )
        self.output.check(self.decoder.width, self.decoder.input_width)
        return self

    def build(self) -> "Translator":
        return Translator(self)

    def parameters(self) -> int:
        total = self.embedding.parameters(self.decoder.input_width)
        if self.source is not None:
            total += self.source.parameters(self.encoder.input_width)
        total += self.encoder.parameters(self.length)
        total += self.decoder.parameters(self.length, cross=True)
        total += self.output.parameters(self.decoder.width, self.embedding.vocabulary)
        return total


class Translator(nn.Module):
    """A source and the beginning of a target to logits of the target's next token."""

    def __init__(self, config: EncoderDecoder) -> None:
        super().__init__()
        width = config.decoder.width
        self.config = config
        self.embedding = config.embedding.build(config.decoder.input_width)
        self.source: TokenEmbedding | None = None
        if config.source is not None:
            self.source = config.source.build(config.encoder.input_width)
        self.encoder = config.encoder.build(config.length)
        self.decoder = config.decoder.build(config.length, cross=True)
        self.output = config.output.build(width, config.embedding.vocabulary)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
    ) -> Tensor:
        """source (B, S) and target (B, T) -> logits of the token after each target position."""
        memory = self.encode(source, source_lengths)
        return self.decode(target, memory, source_lengths, target_lengths)

    @property
    def source_embedding(self) -> TokenEmbedding:
        """The embedding of the source text: its own, or the one both share."""
        if self.source is None:
            return self.embedding
        return self.source

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The memory that the decoder reads: the contextual embeddings of the source, (B, S, D)."""
        return self.encoder(self.source_embedding(source), padding_mask(source, lengths))

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        lengths: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Logits of the token after each target position, (B, T, V).

        With a cache, the memory's keys and values are computed on the first call only.
        """
        states = self.states(target, memory, memory_lengths, lengths, cache)
        return self.output(states, real_lengths(target, lengths), self.embedding.weight)

    def states(
        self,
        target: Tensor,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        lengths: Tensor | None = None,
        cache: KVCache | None = None,
        read: Tensor | None = None,
    ) -> Tensor:
        """The hidden states that the output reads, (B, T, D).

        read (B,): how many positions of each row will be read; the others may hold anything.
        """
        reject_lengths_with_cache(cache, lengths)
        x = self.embedding(target)
        mask = Mask.causal() & padding_mask(target, lengths)
        if read is not None:
            mask = mask & Mask.query_lengths(read)
        memory_mask = padding_mask(memory[..., 0], memory_lengths)
        return self.decoder(x, mask, None, cache, memory, memory_mask)

    def empty_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """A cache for `capacity` target positions, by default the model's length."""
        if capacity is None:
            capacity = self.config.length
        device = self.embedding.weight.device
        return self.config.decoder.empty_cache(batch, capacity, device, self.embedding.dtype)
