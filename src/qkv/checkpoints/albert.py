"""ALBERT (Lan et al. 2020): BERT with a narrow embedding and layers that share their weights.

Layers are divided into groups, and all layers of a group have the same weights.
"""

from collections.abc import Collection
from typing import Any

from qkv.checkpoints.bert import Bert
from qkv.checkpoints.config_fields import ACTIVATIONS, read_feed_forward
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import EncoderHeads, head_name
from qkv.checkpoints.format import attention_dropout_note, require_encoder
from qkv.checkpoints.tensor_names import TensorMap
from qkv.model import (
    Embedding,
    EncoderOnly,
    LayerNorm,
    Learned,
    MaskedToken,
    ModelConfig,
    MultiHead,
    Output,
    PostNorm,
    Stack,
)

# A group of layers with the same weights; inner_group_num is 1 in all published models.
GROUP = "encoder.albert_layer_groups.{i}.albert_layers.0"
BODY: TensorMap = {
    "embedding.weight": "embeddings.word_embeddings.weight",
    "embedding.types": "embeddings.token_type_embeddings.weight",
    "encoder.position.weight": "embeddings.position_embeddings.weight",
    "encoder.norm_in": "embeddings.LayerNorm",
    "encoder.widen": "encoder.embedding_hidden_mapping_in",
    "encoder.{i}.attention.query": f"{GROUP}.attention.query",
    "encoder.{i}.attention.key": f"{GROUP}.attention.key",
    "encoder.{i}.attention.value": f"{GROUP}.attention.value",
    "encoder.{i}.attention.output": f"{GROUP}.attention.dense",
    "encoder.{i}.attention_out": f"{GROUP}.attention.LayerNorm",
    "encoder.{i}.feed_forward.up": f"{GROUP}.ffn",
    "encoder.{i}.feed_forward.down": f"{GROUP}.ffn_output",
    "encoder.{i}.feed_forward_out": f"{GROUP}.full_layer_layer_norm",
}
HEADS = EncoderHeads(
    mlm="predictions",
    masked={"output.change.0": "predictions.dense", "output.change.2": "predictions.LayerNorm"},
    pooler={"output.change.0": "pooler"},
    labels={"output.change.0": "pooler", "output.output.1": "classifier"},
)
DEFAULT_ACTIVATION = "gelu_new"


class Albert(Bert):
    model_types = ("albert",)
    title = "ALBERT, and sentence encoders on it"
    class_prefixes = ("Albert",)
    body = BODY
    heads = HEADS
    prefix = "albert."
    head_prefixes = ("predictions.", "classifier.")
    obsolete_tensors = (r"embeddings\.position_ids", r"sop_classifier\.classifier\.(weight|bias)")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        reader.require(
            "position_embedding_type", ["absolute"], "is not supported; only absolute is"
        )
        reader.require("inner_group_num", [1], "is not supported; only 1 is")
        norm = LayerNorm(eps=reader.positive("layer_norm_eps", 1e-12))
        width = reader.size("hidden_size")
        layers = reader.layers("num_hidden_layers")
        groups = reader.layers("num_hidden_groups", 1)
        stack = Stack(
            layers=layers,
            unique_layers=None if groups == layers else groups,
            width=width,
            embedding_width=_embedding_width(reader),
            attention=MultiHead(heads=reader.size("num_attention_heads")),
            feed_forward=read_feed_forward(
                reader,
                "hidden_act",
                reader.size("intermediate_size"),
                bias=True,
                default=DEFAULT_ACTIVATION,
            ),
            position=Learned(),
            norm=norm,
            norm_placement=PostNorm(),
            input_norm=norm,
            dropout=reader.fraction("hidden_dropout_prob", 0.0),
        )
        dropout = reader.fraction("classifier_dropout_prob", 0.1)
        return EncoderOnly(
            length=reader.size("max_position_embeddings"),
            embedding=Embedding(
                vocabulary=reader.size("vocab_size"), token_types=reader.size("type_vocab_size", 2)
            ),
            encoder=stack,
            output=self.read_output(reader, width, norm, dropout),
        )

    def read_output(
        self, reader: ConfigReader, width: int, norm: LayerNorm, dropout: float
    ) -> Output:
        if head_name(reader) == "masked":
            return MaskedToken(
                tied=reader.flag("tie_word_embeddings", True),
                norm=norm,
                activation=reader.one_of("hidden_act", ACTIVATIONS, DEFAULT_ACTIVATION),
                dense_width=_embedding_width(reader),
            )
        return super().read_output(reader, width, norm, dropout)

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        stack = require_encoder(config).encoder
        fields = super().hf_config(config)
        if "classifier_dropout" in fields:
            fields["classifier_dropout_prob"] = fields.pop("classifier_dropout")
        return fields | {
            "embedding_size": stack.input_width,
            "num_hidden_groups": stack.blocks,
            "inner_group_num": 1,
        }

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_probs_dropout_prob", 0.0)


def _embedding_width(reader: ConfigReader) -> int:
    return reader.size("embedding_size", 128)
