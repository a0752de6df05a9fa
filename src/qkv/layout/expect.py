"""What a layout takes for granted of a config it is asked to say, or an error."""

from qkv.errors import ConfigError
from qkv.layout.layout import OtherFamilyError
from qkv.model import DecoderOnly, EncoderDecoder, EncoderOnly, MultiHead, Rotary, Stack


def expect_encoder(config: object) -> EncoderOnly:
    if not isinstance(config, EncoderOnly):
        raise OtherFamilyError("this layout is for encoders")
    return config


def expect_decoder(config: object) -> DecoderOnly:
    if not isinstance(config, DecoderOnly):
        raise OtherFamilyError("this layout is for decoders")
    return config


def expect_translator(config: object) -> EncoderDecoder:
    if not isinstance(config, EncoderDecoder):
        raise OtherFamilyError("this layout is for encoder–decoders")
    return config


def expect_heads(stack: Stack) -> MultiHead:
    if not isinstance(stack.attention, MultiHead):
        raise ConfigError(f"this layout has heads as in the paper, not {stack.attention.kind}")
    return stack.attention


def expect_rotary(stack: Stack) -> Rotary:
    if not isinstance(stack.position, Rotary):
        raise ConfigError(f"this layout has rotary positions, not {stack.position.kind}")
    return stack.position
