"""What a model costs, in closed form: parameters, FLOPs and bytes.

Every formula is a sum over the configs of the parts; the tests count the same things in torch.
FLOPs are those of matrix products, 2 for each multiply–accumulate, over all pairs of positions
whether masked or not; a training step costs three forward passes. Activations are what autograd
saves with the fused kernel and without dropout, in float32, loss not included.
"""

from dataclasses import dataclass

from qkv.errors import ConfigError
from qkv.model.build import ModelConfig
from qkv.model.encoder import EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder
from qkv.model.stack import Stack

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Cost:
    """Everything but the parameters is counted per token."""

    parameters: int
    forward_flops: float
    training_flops: float
    activation_bytes: float  # saved from forward to backward
    cache_bytes: int  # while generating; the source of a translation is stored once, not counted

    @property
    def weight_bytes(self) -> int:
        return _FLOAT_BYTES * self.parameters


def cost(config: ModelConfig, length: int, source_length: int | None = None) -> Cost:
    """What one token costs in texts of `length` tokens.

    For an encoder–decoder a token is a target token, and carries its fraction of a source text of
    `source_length` tokens (as long as the target if not given).
    """
    if length < 1:
        raise ConfigError(f"length={length}: a text has 1 token or more")
    if isinstance(config, EncoderDecoder):
        if source_length is None:
            source_length = length
        main = config.decoder
        per_target = source_length / length  # source tokens for each target token
        macs = _stack_macs(config.encoder, source_length) * per_target
        macs += _stack_macs(main, length)
        macs += _cross_macs(main, source_length, per_target)
        # All layers of the decoder read the encoder's output, which is saved once.
        elements = (_stack_elements(config.encoder) + main.width) * per_target
        elements += _stack_elements(main) + _cross_elements(main, per_target)
    else:
        main = config.encoder if isinstance(config, EncoderOnly) else config.decoder
        macs = _stack_macs(main, length)
        elements = float(_stack_elements(main))
    macs += config.output.macs(main.width, config.embedding.vocabulary)
    elements += config.output.activation_elements(main.width)
    cache_elements = 0
    if not isinstance(config, EncoderOnly):
        cache_elements = main.layers * main.attention.cache_elements(main.width)
    return Cost(
        parameters=config.parameters(),
        forward_flops=2.0 * macs,
        training_flops=6.0 * macs,
        activation_bytes=_FLOAT_BYTES * elements,
        cache_bytes=_FLOAT_BYTES * cache_elements,
    )


def _stack_macs(stack: Stack, length: int) -> float:
    """Multiply–accumulates of one position that attends to `length` positions."""
    attention = stack.attention
    width = stack.width
    layer = attention.query_macs(width) + attention.key_value_macs(width)
    layer += attention.pair_macs(width) * length
    layer += stack.feed_forward.macs(width)
    total = stack.layers * layer
    if stack.embedding_width is not None:
        total += stack.embedding_width * width
    return total


def _cross_macs(stack: Stack, source_length: int, per_target: float) -> float:
    """Multiply–accumulates of one target position in cross attention to a source."""
    attention = stack.attention
    width = stack.width
    keys = attention.key_value_macs(width) * per_target
    pairs = attention.pair_macs(width) * source_length
    return stack.layers * (attention.query_macs(width) + keys + pairs)


def _stack_elements(stack: Stack) -> int:
    """Elements that autograd saves for one position: each part's input and its intermediates."""
    attention = stack.attention
    width = stack.width
    layer = width + attention.query_activation_elements(width)
    layer += attention.key_value_activation_elements(width)
    layer += width + stack.feed_forward.activation_elements()
    if stack.norm_placement.parallel:
        layer -= width  # both norms of a layer save the same input
    total = stack.layers * layer
    norms = stack.norm_placement.norm_count(stack.layers, cross=False)
    total += norms * stack.norm.activation_elements(width)
    if stack.input_norm is not None:
        total += stack.input_norm.activation_elements(stack.input_width)
    return total + (stack.embedding_width or 0)


def _cross_elements(stack: Stack, per_target: float) -> float:
    """Elements that autograd saves for one target position in cross attention."""
    attention = stack.attention
    width = stack.width
    layer = width + attention.query_activation_elements(width)
    layer_keys = attention.key_value_activation_elements(width) * per_target
    norms = stack.norm_placement.norm_count(stack.layers, cross=True)
    norms -= stack.norm_placement.norm_count(stack.layers, cross=False)
    return stack.layers * (layer + layer_keys) + norms * stack.norm.activation_elements(width)
