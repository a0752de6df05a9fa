"""Marian (Junczys-Dowmunt et al. 2018), as the OPUS-MT translators are published."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.checkpoints.bart import Bart, stack_fields
from qkv.checkpoints.families import stored_apart
from qkv.checkpoints.format import Given, expect_translator
from qkv.model import Embedding, Sinusoidal
from qkv.model.build import ModelConfig


class Marian(Bart):
    kinds = ("marian",)
    title = "Marian, OPUS-MT"
    families = ("Marian",)
    leftovers = (r"(encoder|decoder)\.embed_positions\.weight",)
    architectures = ("MTModel", "Model")
    input_norm: ClassVar[bool] = False
    waves: ClassVar[bool] = True

    def embeddings(
        self, given: Given, tensors: Collection[str]
    ) -> tuple[Embedding, Embedding | None]:
        scaled = given.flag("scale_embedding", False)
        size = given.size("vocab_size")
        table = Embedding(vocabulary=size, scaled=scaled)
        if given.flag("share_encoder_decoder_embeddings", True):
            given.must_be("decoder_vocab_size", [size], f"must be vocab_size={size} to be shared")
            apart = not given.flag("tie_word_embeddings", True) and stored_apart(tensors)
            return table, table if apart else None
        own = given.size("decoder_vocab_size", size)
        return Embedding(vocabulary=own, scaled=scaled), table

    def position(self) -> Any:
        return Sinusoidal(interleaved=False)

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_translator(config)
        own = config.source
        return {
            "model_type": "marian",
            "architectures": ["MarianMTModel"],
            "vocab_size": (own or config.embedding).vocabulary,
            "decoder_vocab_size": config.embedding.vocabulary,
            "share_encoder_decoder_embeddings": own is None,
            "tie_word_embeddings": own is None or config.output.tied,
            "pad_token_id": None,  # the usual one would be beyond a small vocabulary
            **stack_fields(config),
        }

    def copies(self, config: ModelConfig) -> Mapping[str, str]:
        return {}  # tables that are not shared leave no third one
