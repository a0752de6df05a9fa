"""Pegasus (Zhang et al. 2020): the pre-norm layers of mBART on sinusoidal positions."""

from typing import Any, ClassVar

from qkv.checkpoints.bart import Bart, stack_fields
from qkv.checkpoints.format import require_encoder_decoder
from qkv.model import ModelConfig, Sinusoidal


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
