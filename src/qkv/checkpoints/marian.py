"""Marian (Junczys-Dowmunt et al. 2018), as the OPUS-MT translators are published."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.checkpoints.bart import Bart, stack_fields
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.format import require_encoder_decoder
from qkv.model import Embedding, ModelConfig, Sinusoidal


class Marian(Bart):
    model_types = ("marian",)
    title = "Marian, OPUS-MT"
    class_prefixes = ("Marian",)
    # Sinusoids, computed here.
    obsolete_tensors = (r"(encoder|decoder)\.embed_positions\.weight",)
    class_suffixes = ("MTModel", "Model")
    input_norm: ClassVar[bool] = False
    sinusoidal: ClassVar[bool] = True

    def read_embeddings(
        self, reader: ConfigReader, tensors: Collection[str]
    ) -> tuple[Embedding, Embedding | None]:
        scaled = reader.flag("scale_embedding", False)
        vocabulary = reader.size("vocab_size")
        source = Embedding(vocabulary=vocabulary, scaled=scaled)
        if not reader.flag("share_encoder_decoder_embeddings", True):
            target_vocabulary = reader.size("decoder_vocab_size", vocabulary)
            return Embedding(vocabulary=target_vocabulary, scaled=scaled), source
        reader.require(
            "decoder_vocab_size", [vocabulary], f"must be vocab_size={vocabulary} to be shared"
        )
        return super().read_embeddings(reader, tensors)

    def position(self) -> Any:
        return Sinusoidal(interleaved=False)

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder_decoder(config)
        shared = config.source is None
        source = config.source or config.embedding
        return {
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "vocab_size": source.vocabulary,
            "decoder_vocab_size": config.embedding.vocabulary,
            "share_encoder_decoder_embeddings": shared,
            "tie_word_embeddings": shared or config.output.tied,
            "pad_token_id": None,  # the default of transformers may lie beyond the vocabulary
            **stack_fields(config),
        }

    def duplicates(self, config: ModelConfig) -> Mapping[str, str]:
        return {}  # unlike BART, separate embeddings leave no `shared` one
