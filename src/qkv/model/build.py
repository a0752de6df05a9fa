"""Building a model from its config: its weights initialised, or only its shapes."""

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

_EMBEDDING_STD = 0.02  # of token and position tables (Radford et al. 2019)

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
    """The model on the meta device: shapes to count, or to fill from a file."""
    with torch.device("meta"):
        return config.build()


def read_config(text: str | bytes) -> ModelConfig:
    """The config that this JSON describes; keys of older versions are upgraded."""
    fields = _json_object(text)
    try:
        return _AnyModel.model_validate(upgrade("config.json", fields)).root
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


class _AnyModel(RootModel[ModelConfig]):
    """Any of the three families, told apart by `kind`."""

    root: Annotated[ModelConfig, Field(discriminator="kind")]


def initialise(model: nn.Module, seed: int) -> None:
    """Fill every parameter in place: norms 1, biases 0, the rest normal around 0.

    A matrix with n inputs gets a standard deviation of 1/√n, so that its outputs are as large as
    its inputs. The last matrix of each of n sublayers is divided by √n, because their results add
    up in the residual stream (Radford et al. 2019). Token and position tables start at 0.02, or at
    1/√D where embeddings are scaled by √D.

    A module may initialise itself: one with a method `initialise(generator)` fills its own direct
    parameters after all others are filled.
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
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.copy_(noise * _std(owner, name, parameter))
        for module in model.modules():
            if isinstance(module, Layers):
                _scale_down_outputs(module)
        for module in model.modules():
            own = getattr(module, "initialise", None)
            if own is not None:
                own(generator)


def _std(owner: nn.Module, name: str, parameter: nn.Parameter) -> float:
    """The standard deviation of a fresh parameter of two or more axes."""
    if isinstance(owner, nn.Linear):
        return 1.0 / math.sqrt(owner.in_features)
    if isinstance(owner, TokenEmbedding):
        if isinstance(owner.scale, Scale):
            return 1.0 / owner.scale.factor
        return _EMBEDDING_STD
    if name.rpartition(".")[2] in ("down", "up"):  # a low-rank projection: (inputs, outputs)
        return 1.0 / math.sqrt(parameter.shape[0])
    if parameter.dim() == 2:
        return _EMBEDDING_STD
    return 1.0 / math.sqrt(parameter.shape[1])


def _scale_down_outputs(layers: Layers) -> None:
    """Divide the last matrix of each of n sublayers by √n."""
    sublayers = [m for m in layers.modules() if isinstance(m, Attention | FeedForward)]
    for sublayer in sublayers:
        last = sublayer.output if isinstance(sublayer, Attention) else sublayer.down
        if isinstance(last, nn.Linear):  # block-diagonal attention has no output matrix
            last.weight.mul_(len(sublayers) ** -0.5)
