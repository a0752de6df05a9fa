"""ALBERT (Lan et al. 2020): a narrow embedding table, and layers that share their weights."""

from collections.abc import Collection
from typing import Any

from qkv.checkpoints.bert import Bert
from qkv.checkpoints.config_fields import BENT, feed_forward
from qkv.checkpoints.families import Heads, head_of
from qkv.checkpoints.format import Given, expect_encoder, told_dropout
from qkv.checkpoints.tensor_names import Table
from qkv.model import (
    Embedding,
    EncoderOnly,
    LayerNorm,
    Learned,
    MaskedToken,
    MultiHead,
    PostNorm,
    Stack,
)
from qkv.model.build import ModelConfig
from qkv.model.output import Output

GROUP = "encoder.albert_layer_groups.{i}.albert_layers.0"
BODY: Table = {
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
HEADS = Heads(
    place="predictions",
    masked={"output.change.0": "predictions.dense", "output.change.2": "predictions.LayerNorm"},
    pooler={"output.change.0": "pooler"},
    labels={"output.change.0": "pooler", "output.output.1": "classifier"},
)
ACTIVATION = "gelu_new"  # where none is named


class Albert(Bert):
    kinds = ("albert",)
    title = "ALBERT, and sentence encoders on it"
    families = ("Albert",)
    body = BODY
    heads = HEADS
    prefix = "albert."
    head = ("predictions.", "classifier.")
    leftovers = (r"embeddings\.position_ids", r"sop_classifier\.classifier\.(weight|bias)")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        given.must_be("position_embedding_type", ["absolute"], "cannot be carried; absolute can")
        given.must_be("inner_group_num", [1], "cannot be carried; groups of 1 layer can")
        norm = LayerNorm(eps=given.positive("layer_norm_eps", 1e-12))
        width = given.size("hidden_size")
        inner = given.size("intermediate_size")
        layers = given.layers("num_hidden_layers")
        groups = given.layers("num_hidden_groups", 1)
        stack = Stack(
            layers=layers,
            unique_layers=None if groups == layers else groups,
            width=width,
            embedding_width=table_width(given),
            attention=MultiHead(heads=given.size("num_attention_heads")),
            feed_forward=feed_forward(given, "hidden_act", inner, bias=True, absent=ACTIVATION),
            position=Learned(),
            norm=norm,
            norm_placement=PostNorm(),
            input_norm=norm,
            dropout=given.share("hidden_dropout_prob", 0.0),
        )
        return EncoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(
                vocabulary=given.size("vocab_size"), token_types=given.size("type_vocab_size", 2)
            ),
            encoder=stack,
            output=self.output(given, width, norm, given.share("classifier_dropout_prob", 0.1)),
        )

    def output(self, given: Given, width: int, norm: LayerNorm, dropout: float) -> Output:
        if head_of(given) == "masked":
            return MaskedToken(
                tied=given.flag("tie_word_embeddings", True),
                norm=norm,
                activation=given.one_of("hidden_act", BENT, ACTIVATION),
                dense_width=table_width(given),
            )
        return super().output(given, width, norm, dropout)

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        stack = expect_encoder(config).encoder
        bert = super().fields(config)
        if "classifier_dropout" in bert:
            bert["classifier_dropout_prob"] = bert.pop("classifier_dropout")
        return bert | {
            "embedding_size": stack.input_width,
            "num_hidden_groups": stack.blocks,
            "inner_group_num": 1,
        }

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "attention_probs_dropout_prob", 0.0)


def table_width(given: Given) -> int:
    return given.size("embedding_size", 128)
