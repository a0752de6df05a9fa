"""One of the three families, read from JSON or built with fresh weights."""

from typing import Annotated

import torch
from pydantic import Field, RootModel, ValidationError

from qkv.device import resolve
from qkv.errors import ConfigError
from qkv.model.choice import one_line
from qkv.model.decoder import Decoder, DecoderOnly
from qkv.model.encoder import Encoder, EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder, Translator
from qkv.model.initialise import initialise

Config = EncoderOnly | DecoderOnly | EncoderDecoder
Model = Encoder | Decoder | Translator


def build(config: Config, seed: int = 0, device: torch.device | str = "cpu") -> Model:
    """The model with fresh weights, the same for the same seed on every machine of one kind."""
    if isinstance(config, str):
        raise ConfigError(f'build takes a config; write build(preset("{config}"))')
    model = skeleton(config).to_empty(device=resolve(device))
    initialise(model, seed)
    return model


def skeleton(config: Config) -> Model:
    """The model without memory for its weights: shapes to count, or to fill from a file."""
    with torch.device("meta"):
        return config.build()


def read_config(text: str | bytes) -> Config:
    """The model that this JSON describes."""
    try:
        return _Described.model_validate_json(text).root
    except ValidationError as error:
        raise ConfigError(one_line(error)) from None


class _Described(RootModel[Config]):
    """Any of the three, told apart by `kind`."""

    root: Annotated[Config, Field(discriminator="kind")]
