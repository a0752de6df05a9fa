"""The interface of a public checkpoint format: its config.json and its tensor names.

To add a format, write a file like `gpt2.py` and list the class in `registry.FORMATS`:

    class Mine(CheckpointFormat):
        model_types = ("mine",)                # model_type in config.json
        title = "Mine (Author, year)"
        prefix = "model."                      # before the tensors of the body
        class_prefixes = ("Mine",)             # with the suffixes: MineForCausalLM,
        class_suffixes = ("ForCausalLM",)      # checked before `read_config` is called

        def read_config(self, reader, tensors): ...   # ConfigReader -> DecoderOnly(...)
        def hf_config(self, config): ...              # the inverse, verified by reading it back
        def tensor_map(self, config):                 # see tensor_names.py
            return {"decoder.{i}.attention.query": "layers.{i}.q_proj", ...}

and a `tests/checkpoints/cases_mine.py` with small models of `transformers`: the tests load them,
run them with padding and with a cache, export them, and let `transformers` load the result.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from torch import Tensor

from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.tensor_names import TensorMap
from qkv.errors import ConfigError
from qkv.model import (
    Classify,
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    ModelConfig,
    MultiHead,
    Rope,
    Stack,
)


class WrongFamilyError(ConfigError):
    """The format is for another model family: an encoder format cannot hold a decoder."""


class CheckpointFormat(ABC):
    """Translates one public checkpoint format to our configs and parameter names, and back.

    Tensor names are written without `prefix`, except in `duplicates`.
    """

    model_types: ClassVar[tuple[str, ...]]  # all are read, the first is written
    title: ClassVar[str]  # for documentation
    class_prefixes: ClassVar[tuple[str, ...]]  # of the `transformers` classes: "Bert"
    class_suffixes: ClassVar[tuple[str, ...]]  # "ForMaskedLM"
    prefix: ClassVar[str] = ""  # of all body tensors, unless the body was saved by itself
    head_prefixes: ClassVar[tuple[str, ...]] = ()  # tensors that start so do not get `prefix`
    obsolete_tensors: ClassVar[tuple[str, ...]] = ()  # regexes: buffers of old files, ignored
    has_pooler: ClassVar[bool] = False

    @abstractmethod
    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        """Our config for a config.json; `tensors` are the names in the weights file."""

    @abstractmethod
    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        """The config.json for our config, as close as the format allows.

        It may be lossy: exporting compares `read_config` of the result with the original.
        """

    @abstractmethod
    def tensor_map(self, config: ModelConfig) -> TensorMap:
        """The public name of each of our parameters."""

    def constant_tensors(self, config: ModelConfig) -> Mapping[str, Tensor]:
        """Tensors that our model computes and a public file stores, such as sinusoids."""
        return {}

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        """Second names of tied tensors: alias -> name.

        A file may hold either or both; if both, they must be equal.
        """
        return {}

    def unused_tensors(self, config: ModelConfig) -> tuple[str, ...]:
        """Regexes of tensors that this config has no use for although others of the format do.

        They are ignored and listed on the import card.
        """
        return ()

    def duplicates(self, config: ModelConfig) -> Mapping[str, str]:
        """Tensors to write a second time because other programs expect them: copy -> original.

        Both are full names, as in the file.
        """
        return {}

    def with_token_ids(
        self, fields: Mapping[str, Any], token_ids: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The config.json with the ids of special tokens, such as eos_token_id."""
        return {**fields, **token_ids}

    def classification_output(
        self, config: ModelConfig, labels: tuple[str, ...]
    ) -> Classify | None:
        """The classification head of the format's own classes; None if it has none."""
        return None

    def notes(self, reader: ConfigReader) -> list[str]:
        """Settings that were not carried over, for people to read."""
        return []


def attention_dropout_note(reader: ConfigReader, name: str, default: float) -> list[str]:
    """A note if the field sets dropout of attention weights, which our models do not have."""
    rate = reader.fraction(name, default)
    if rate == 0.0:
        return []
    return [f"dropout of attention weights ({rate:g}), only used in training"]


# Each of these narrows a config to what a format supports, or raises.


def require_encoder(config: object) -> EncoderOnly:
    if not isinstance(config, EncoderOnly):
        raise WrongFamilyError("this format is for encoders")
    return config


def require_decoder(config: object) -> DecoderOnly:
    if not isinstance(config, DecoderOnly):
        raise WrongFamilyError("this format is for decoders")
    return config


def require_encoder_decoder(config: object) -> EncoderDecoder:
    if not isinstance(config, EncoderDecoder):
        raise WrongFamilyError("this format is for encoder–decoders")
    return config


def require_multi_head(stack: Stack) -> MultiHead:
    if not isinstance(stack.attention, MultiHead):
        raise ConfigError(f"this format needs multi_head attention, not {stack.attention.kind}")
    return stack.attention


def require_rope(stack: Stack) -> Rope:
    if not isinstance(stack.position, Rope):
        raise ConfigError(f"this format needs rotary positions, not {stack.position.kind}")
    return stack.position
