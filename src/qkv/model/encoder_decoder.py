"""Encoder–decoder: a decoder that also reads what an encoder made of another text (translation)."""

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
    """A decoder that also reads what an encoder made of another text: translation.

    Without `source` both texts share one embedding; with a tied output that makes three uses of
    one table, as in the paper.
    """

    kind: Literal["encoder_decoder"] = "encoder_decoder"
    length: Size
    embedding: Embedding
    source: Embedding | None = None
    encoder: Stack
    decoder: Stack
    output: NextToken = NextToken()

    @model_validator(mode="after")
    def _fits(self) -> "EncoderDecoder":
        for table in (self.embedding, self.source):
            if table is not None:
                table.expect_no_types()
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
        self.output.fit(self.decoder.width, self.decoder.input_width)
        return self

    def build(self) -> "Translator":
        return Translator(self)

    def parameters(self) -> int:
        width = self.decoder.width
        tables = self.embedding.parameters(self.decoder.input_width)
        if self.source is not None:
            tables += self.source.parameters(self.encoder.input_width)
        stacks = self.encoder.parameters(self.length)
        stacks += self.decoder.parameters(self.length, cross=True)
        return tables + stacks + self.output.parameters(width, self.embedding.vocabulary)


class Translator(nn.Module):
    """A source and the beginning of a target to scores of the target's next token."""

    def __init__(self, config: EncoderDecoder) -> None:
        super().__init__()
        width = config.decoder.width
        self.config = config
        self.embedding = config.embedding.build(config.decoder.input_width)
        own = config.source
        self.source = None if own is None else own.build(config.encoder.input_width)
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
        """source (B, S) and target (B, T) -> scores of the token after each target position."""
        memory = self.encode(source, source_lengths)
        return self.decode(target, memory, source_lengths, target_lengths)

    @property
    def source_embedding(self) -> TokenEmbedding:
        """The embedding of the source text: its own, or the one both share."""
        return self.embedding if self.source is None else self.source

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What the decoder reads: the context-aware embedding of each source position."""
        return self.encoder(self.source_embedding(source), padding_mask(source, lengths))

    def decode(
        self,
        target: Tensor,
        memory: Tensor,
        memory_lengths: Tensor | None = None,
        lengths: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Scores of the token after each target position, (B, T, V).

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
        """What the output reads at each target position, (B, T, D).

        read (B,): how many positions of each row it will read; others may hold anything.
        """
        reject_lengths_with_cache(cache, lengths)
        x = self.embedding(target)
        seen = Mask.causal() & padding_mask(target, lengths)
        if read is not None:
            seen = seen & Mask.query_lengths(read)
        reads = padding_mask(memory[..., 0], memory_lengths)
        return self.decoder(x, seen, None, cache, memory, reads)

    def empty_cache(self, batch: int, capacity: int | None = None) -> KVCache:
        """Room for `capacity` target positions, the model's whole length if not given."""
        table = self.embedding
        room = self.config.length if capacity is None else capacity
        return self.config.decoder.empty_cache(batch, room, table.weight.device, table.dtype)
