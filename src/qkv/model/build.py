"""One of the three families, read from JSON or built with fresh weights."""

import json
import math
from typing import Annotated, Any

import torch
from pydantic import Field, RootModel, ValidationError
from torch import nn

from qkv.device import resolve_device
from qkv.errors import ConfigError
from qkv.legacy import upgrade
from qkv.model.attention import Attention
from qkv.model.config import validation_message
from qkv.model.decoder import Decoder, DecoderOnly
from qkv.model.embedding import Scale, TokenEmbedding
from qkv.model.encoder import Encoder, EncoderOnly
from qkv.model.encoder_decoder import EncoderDecoder, Translator
from qkv.model.feed_forward import FeedForward
from qkv.model.norm import UnitOffsetRMSNorm
from qkv.model.stack import Layers

# FOLDED model/initialise: Fresh weights: small normal numbers, smaller where many of them are
#   added up.


def initialise(model: nn.Module, seed: int) -> None:
    """Fill every parameter in place: norms 1, biases 0, the rest normal around 0.

    A matrix that reads n numbers gets a spread of 1/√n, so that what comes out is as large as
    what went in. What the n parts of a stack add to the residual stream is made smaller by √n
    (Radford et al. 2019). Tables of tokens and positions start at 0.02, or at 1/√D
    where they are scaled by √D.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            owner = model.get_submodule(name.rpartition(".")[0])
            if isinstance(owner, UnitOffsetRMSNorm):
                parameter.zero_()
            elif isinstance(owner, nn.LayerNorm | nn.RMSNorm):
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
            elif parameter.dim() == 1:
                parameter.zero_()
            else:
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.copy_(drawn * _spread(owner, name, parameter))
        for layers in (module for module in model.modules() if isinstance(module, Layers)):
            _quieten(layers)


def _spread(owner: nn.Module, name: str, parameter: nn.Parameter) -> float:
    if isinstance(owner, nn.Linear):
        return 1.0 / math.sqrt(owner.in_features)
    if isinstance(owner, TokenEmbedding):
        return 1.0 / owner.scale.factor if isinstance(owner.scale, Scale) else 0.02
    if name.rpartition(".")[2] in ("down", "up"):  # factored: written input first
        return 1.0 / math.sqrt(parameter.shape[0])
    return 0.02 if parameter.dim() == 2 else 1.0 / math.sqrt(parameter.shape[1])


def _quieten(layers: Layers) -> None:
    parts = [module for module in layers.modules() if isinstance(module, Attention | FeedForward)]
    for part in parts:
        last = part.output if isinstance(part, Attention) else part.down
        if isinstance(last, nn.Linear):  # the notes' heads are joined without a matrix
            last.weight.mul_(len(parts) ** -0.5)


ModelConfig = EncoderOnly | DecoderOnly | EncoderDecoder

Model = Encoder | Decoder | Translator


def build(config: ModelConfig, seed: int = 0, device: torch.device | str = "cpu") -> Model:
    """The model with fresh weights, the same for the same seed on every machine of one kind."""
    if isinstance(config, str):
        raise ConfigError(f'build takes a config; write build(preset("{config}"))')
    model = skeleton(config).to_empty(device=resolve_device(device))
    initialise(model, seed)
    return model


def skeleton(config: ModelConfig) -> Model:
    """The model without memory for its weights: shapes to count, or to fill from a file."""
    with torch.device("meta"):
        return config.build()


def read_config(text: str | bytes) -> ModelConfig:
    """The model that this JSON describes."""
    try:
        return _Described.model_validate(upgrade("config.json", _json_object(text))).root
    except ValidationError as error:
        raise ConfigError(validation_message(error)) from None


def _json_object(text: str | bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"Invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"Invalid JSON: an object is needed, not {fields!r:.40}")
    return fields


class _Described(RootModel[ModelConfig]):
    """Any of the three, told apart by `kind`."""

    root: Annotated[ModelConfig, Field(discriminator="kind")]
