"""What a model is for: in a sentence, by the methods that suit it, and with its sizes."""

from typing import NamedTuple

from qkv.model import (
    Classify,
    Decoder,
    Encoder,
    EncoderOnly,
    Model,
    Stack,
    TextVector,
    Translator,
)
from qkv.text import Tokenizer

MAX_LABELS = 8  # of a classifier, in the short form of a model


class Purpose(NamedTuple):
    """What a model is for: said where it is asked for something else."""

    description: str
    command: str  # the command that suits it


def purpose_of(model: Model) -> Purpose:
    """What the model is for, by its family and, for an encoder, by its output."""
    if isinstance(model, Decoder):
        return Purpose("a decoder, which generates text", "qkv generate")
    if not isinstance(model, Encoder):
        return Purpose("an encoder–decoder, which translates text", "qkv translate")
    match model.config.output:
        case Classify():
            return Purpose("a classifier", "qkv classify")
        case TextVector():
            return Purpose("an encoder that embeds text", "qkv embed")
        case _:
            return Purpose("a masked-language-model encoder", "qkv embed")


def methods_of(model: Model) -> tuple[str, ...]:
    """The methods of an engine that suit the model."""
    if isinstance(model, Decoder):
        return ("generate", "generate_many", "chat")
    if isinstance(model, Translator):
        return ("translate",)
    if isinstance(model.config.output, Classify):
        return ("classify", "embed")
    return ("embed", "similar", "cluster")


def summary_lines(model: Model, tokenizer: Tokenizer | None) -> list[str]:
    """The sizes of a model, its tokenizer and labels, one line each."""
    config = model.config
    length = config.context_length if isinstance(config, EncoderOnly) else config.length
    lines = [f"{config.parameters():,} parameters, context of {length:,} tokens"]
    for name in ("encoder", "decoder"):
        stack = getattr(config, name, None)
        if isinstance(stack, Stack):
            heads = stack.attention.heads
            lines.append(f"{name}: {stack.layers} layers × {heads} heads, width {stack.width:,}")
    if tokenizer is not None:
        lines.append(f"tokenizer: {tokenizer.summary}")
    if isinstance(config.output, Classify):
        labels = config.output.labels
        more = f" and {len(labels) - MAX_LABELS} more" if len(labels) > MAX_LABELS else ""
        lines.append(f"labels: {', '.join(labels[:MAX_LABELS])}{more}")
    return lines
