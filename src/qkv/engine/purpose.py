"""What a model is for, in words: said where it is asked for something else."""

from typing import NamedTuple

from qkv.model import Classify, Decoder, Encoder, Model, TextVector


class Purpose(NamedTuple):
    it_is: str
    command: str  # what suits it


def purpose_of(model: Model) -> Purpose:
    """Told from the family and, of an encoder, from the output."""
    if isinstance(model, Decoder):
        return Purpose("a decoder, which writes text", "qkv generate")
    if not isinstance(model, Encoder):
        return Purpose("an encoder–decoder, which turns a text into another", "qkv translate")
    if isinstance(model.config.output, Classify):
        return Purpose("a classifier", "qkv classify")
    if isinstance(model.config.output, TextVector):
        return Purpose("an encoder that gives vectors", "qkv embed")
    return Purpose("an encoder that fills in hidden tokens", "qkv embed")
