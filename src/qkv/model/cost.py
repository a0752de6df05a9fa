"""What a model costs, in closed form: parameters, FLOPs, and the bytes it keeps.

Every formula is the sum of what the choices say of themselves; the tests count the same things in
torch. FLOPs are those of matrix products, 2 for each multiplication and its addition, over every
pair of positions whether masked or not; a training step costs three forward passes. Activations
are what autograd keeps with the fused kernel and without dropout, in float32, loss not included.
"""

from dataclasses import dataclass

from qkv.errors import ConfigError
from qkv.model.build import ModelConfig
from qkv.model.encoder import EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder
from qkv.model.stack import Stack

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Cost:
    """Everything but the parameters is counted per token."""

    parameters: int
    forward_flops: float
    training_flops: float
    activation_bytes: float  # kept from forward to backward
    cache_bytes: int  # kept while generating; a source text is kept once, not counted here

    @property
    def weight_bytes(self) -> int:
        return FLOAT * self.parameters


def cost(config: ModelConfig, length: int, source_length: int | None = None) -> Cost:
    """What one token costs in texts of `length` tokens.

    For an encoder–decoder a token is a target token, and carries its share of a source text of
    `source_length` tokens (as long as the target if not given).
    """
    if length < 1:
        raise ConfigError(f"length={length}: a text has 1 token or more")
    if isinstance(config, EncoderDecoder):
        source = length if source_length is None else source_length
        share, main = source / length, config.decoder
        multiplied = _stack(config.encoder, source) * share + _stack(main, length)
        multiplied += _cross(main, source, share)
        kept = (_kept(config.encoder) + main.width) * share  # the memory is read by all layers
        kept += _kept(main) + _kept_cross(main, share)
    else:
        main = config.encoder if isinstance(config, EncoderOnly) else config.decoder
        multiplied, kept = _stack(main, length), float(_kept(main))
    multiplied += config.output.multiplications(main.width, config.embedding.vocabulary)
    kept += config.output.kept(main.width)
    cached = 0 if isinstance(config, EncoderOnly) else main.attention.cache_numbers(main.width)
    return Cost(
        parameters=config.parameters(),
        forward_flops=2.0 * multiplied,
        training_flops=6.0 * multiplied,
        activation_bytes=FLOAT * kept,
        cache_bytes=FLOAT * main.layers * cached,
    )


def _stack(stack: Stack, length: int) -> float:
    """Multiplications of one position that is compared with `length` positions."""
    heads, width = stack.attention, stack.width
    projections = heads.own_multiplications(width) + heads.source_multiplications(width)
    pairs = heads.pair_multiplications(width) * length
    widened = 0 if stack.embedding_width is None else stack.embedding_width * width
    layer = projections + pairs + stack.feed_forward.multiplications(width)
    return stack.layers * layer + widened


def _cross(stack: Stack, source: int, share: float) -> float:
    """Multiplications of one target position reading a source, with its share of the keys."""
    heads, width = stack.attention, stack.width
    keys = heads.source_multiplications(width) * share
    pairs = heads.pair_multiplications(width) * source
    return stack.layers * (heads.own_multiplications(width) + keys + pairs)


def _kept(stack: Stack) -> int:
    """Numbers autograd keeps of one position: what each part reads, and what it makes inside."""
    heads, width = stack.attention, stack.width
    attention = width + heads.own_kept(width) + heads.source_kept(width)
    feed_forward = width + stack.feed_forward.kept()
    norms = stack.norm_placement.norm_count(stack.layers, cross=False) * stack.norm.kept(width)
    first = 0 if stack.input_norm is None else stack.input_norm.kept(stack.input_width)
    first += stack.embedding_width or 0
    twice = width if stack.norm_placement.parallel else 0  # two norms keep one and the same input
    return stack.layers * (attention + feed_forward - twice) + norms + first


def _kept_cross(stack: Stack, share: float) -> float:
    heads, width = stack.attention, stack.width
    reading = width + heads.own_kept(width) + heads.source_kept(width) * share
    extra = stack.norm_placement.norm_count(stack.layers, cross=True)
    extra -= stack.norm_placement.norm_count(stack.layers, cross=False)
    return stack.layers * reading + extra * stack.norm.kept(width)
