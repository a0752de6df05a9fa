"""What a model costs, in closed form: parameters, FLOPs, and the bytes it keeps.

Every formula is the sum of what the choices say of themselves; the tests count the same things in
torch. FLOPs are those of matrix products, 2 for each multiplication and its addition, over every
pair of positions whether masked or not; a training step costs three forward passes.
"""

from dataclasses import dataclass

from qkv.model.encoder import EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder
from qkv.model.family import Config
from qkv.model.stack import Stack


@dataclass(frozen=True)
class Cost:
    """For texts of one length, in float32 unless said otherwise."""

    parameters: int
    forward_flops: float  # a token
    training_flops: float  # a token
    activation_bytes: float  # a token, kept from forward to backward
    cache_bytes: int  # a token, kept while generating

    @property
    def weight_bytes(self) -> int:
        return 4 * self.parameters


def cost(config: Config, length: int, source_length: int | None = None) -> Cost:
    """The cost a token of texts of `length` tokens.

    For an encoder–decoder a token is a target token, and carries its share of a source text of
    `source_length` tokens (as long as the target if not given).
    """
    if isinstance(config, EncoderDecoder):
        source = length if source_length is None else source_length
        share = source / length
        multiplied = _stack(config.encoder, source) * share
        multiplied += _stack(config.decoder, length) + _cross(config.decoder, source, share)
        main = config.decoder
    else:
        main = config.encoder if isinstance(config, EncoderOnly) else config.decoder
        multiplied = _stack(main, length)
    multiplied += config.output.multiplications(main.width, config.embedding.vocabulary)
    forward = 2.0 * multiplied
    kept = 0 if isinstance(config, EncoderOnly) else main.attention.cache_numbers(main.width)
    return Cost(
        parameters=config.parameters(),
        forward_flops=forward,
        training_flops=3.0 * forward,
        activation_bytes=0.0,
        cache_bytes=4 * main.layers * kept,
    )


def _stack(stack: Stack, length: int) -> float:
    """Multiplications of one position among `length` that it is compared with."""
    heads, width = stack.attention, stack.width
    projections = heads.own_multiplications(width) + heads.source_multiplications(width)
    pairs = heads.pair_multiplications(width) * length
    return stack.layers * (projections + pairs + stack.feed_forward.multiplications(width))


def _cross(stack: Stack, source: int, share: float) -> float:
    """Multiplications of one target position reading a source, with its share of the keys."""
    heads, width = stack.attention, stack.width
    keys = heads.source_multiplications(width) * share
    pairs = heads.pair_multiplications(width) * source
    return stack.layers * (heads.own_multiplications(width) + keys + pairs)
