"""Pegasus (Zhang et al. 2020): the pre-norm layers of mBART on sinusoidal positions."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.attention import sinusoids
from qkv.checkpoints.bart import Bart, stack_fields
from qkv.checkpoints.format import require_encoder_decoder
from qkv.model import ModelConfig, Sinusoidal

SIDES = ("encoder", "decoder")


class Pegasus(Bart):
    model_types = ("pegasus",)
    title = "Pegasus"
    class_prefixes = ("Pegasus",)
    # Sinusoids, computed here.
    obsolete_tensors = (r"(encoder|decoder)\.embed_positions\.weight",)
    input_norm: ClassVar[bool] = False
    sinusoidal: ClassVar[bool] = True

    def position(self) -> Any:
        return Sinusoidal(interleaved=False)

    def constant_tensors(self, config: ModelConfig) -> Mapping[str, Tensor]:
        config = require_encoder_decoder(config)
        table = sinusoids(torch.arange(config.length), config.decoder.width, interleaved=False)
        return {f"{self.prefix}{side}.embed_positions.weight": table.clone() for side in SIDES}

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder_decoder(config)
        return {
            "model_type": "pegasus",
            "architectures": ["PegasusForConditionalGeneration"],
            "vocab_size": config.embedding.vocabulary,
            "tie_word_embeddings": config.source is None,
            # null, because the defaults of transformers are tokens of another vocabulary
            "pad_token_id": None,
            "eos_token_id": None,
            "forced_eos_token_id": None,
            **stack_fields(config),
        }
