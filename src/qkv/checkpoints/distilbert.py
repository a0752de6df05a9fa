"""DistilBERT (Sanh et al. 2019): BERT without token types and pooler, under names of its own."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import BENT, activation_name, feed_forward
from qkv.checkpoints.families import (
    SENTENCE,
    architecture,
    head_of,
    labels_of,
    output_fields,
    tensors_of,
)
from qkv.checkpoints.format import Given, Layout, expect_encoder, told_dropout
from qkv.checkpoints.tensor_names import Table
from qkv.model import (
    Classify,
    Embedding,
    EncoderOnly,
    First,
    LayerNorm,
    Learned,
    MaskedToken,
    MultiHead,
    PostNorm,
    Stack,
    TextVector,
)
from qkv.model.build import ModelConfig
from qkv.model.output import Output

BODY: Table = {
    "embedding.weight": "embeddings.word_embeddings.weight",
    "encoder.position.weight": "embeddings.position_embeddings.weight",
    "encoder.norm_in": "embeddings.LayerNorm",
    "encoder.{i}.attention.query": "transformer.layer.{i}.attention.q_lin",
    "encoder.{i}.attention.key": "transformer.layer.{i}.attention.k_lin",
    "encoder.{i}.attention.value": "transformer.layer.{i}.attention.v_lin",
    "encoder.{i}.attention.output": "transformer.layer.{i}.attention.out_lin",
    "encoder.{i}.attention_out": "transformer.layer.{i}.sa_layer_norm",
    "encoder.{i}.feed_forward.up": "transformer.layer.{i}.ffn.lin1",
    "encoder.{i}.feed_forward.down": "transformer.layer.{i}.ffn.lin2",
    "encoder.{i}.feed_forward_out": "transformer.layer.{i}.output_layer_norm",
}
MASKED: Table = {
    "output.change.0": "vocab_transform",
    "output.change.2": "vocab_layer_norm",
    "output.output": "vocab_projector",
}
LABELS: Table = {"output.change.0": "pre_classifier", "output.output.1": "classifier"}
NORM = LayerNorm(eps=1e-12)  # no field says it


class DistilBert(Layout):
    kinds = ("distilbert",)
    title = "DistilBERT, and sentence encoders on it"
    families = ("DistilBert",)
    prefix = "distilbert."
    head = ("vocab_", "pre_classifier.", "classifier.")
    leftovers = (r"embeddings\.position_ids",)
    architectures = ("Model", "ForMaskedLM", "ForSequenceClassification")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        width = given.size("dim")
        stack = Stack(
            layers=given.layers("n_layers"),
            width=width,
            attention=MultiHead(heads=given.size("n_heads")),
            feed_forward=feed_forward(given, "activation", given.size("hidden_dim"), bias=True),
            position=Learned(),  # also where it began as waves: the file has them as weights
            norm=NORM,
            norm_placement=PostNorm(),
            input_norm=NORM,
            dropout=given.share("dropout", 0.1),
        )
        return EncoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=given.size("vocab_size")),
            encoder=stack,
            output=self.output(given, width),
        )

    def output(self, given: Given, width: int) -> Output:
        head = head_of(given)
        if head == "masked":
            tied = given.flag("tie_word_embeddings", True)
            bend = given.one_of("activation", BENT, "gelu")
            return MaskedToken(tied=tied, norm=NORM, activation=bend)
        if head == "labels":
            return label_head(labels_of(given), width, given.share("seq_classif_dropout", 0.2))
        return SENTENCE

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_encoder(config)
        stack = config.encoder
        output = config.output
        return {
            "model_type": self.kinds[0],
            "architectures": [architecture(self.families[0], output)],
            "vocab_size": config.embedding.vocabulary,
            "dim": stack.width,
            "n_layers": stack.layers,
            "n_heads": stack.attention.heads,
            "hidden_dim": stack.feed_forward.width,
            "activation": activation_name(stack.feed_forward),
            "max_position_embeddings": config.length,
            "sinusoidal_pos_embds": False,
            "dropout": stack.dropout,
            "attention_dropout": 0.0,
            **output_fields(output, "seq_classif_dropout"),
        }

    def table(self, config: ModelConfig) -> Table:
        return BODY | (MASKED if isinstance(config.output, MaskedToken) else LABELS)

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        tied = isinstance(config.output, MaskedToken) and config.output.tied
        if tied:
            return {"vocab_projector.weight": "embeddings.word_embeddings.weight"}
        return {}

    def unused(self, config: ModelConfig) -> tuple[str, ...]:
        if not isinstance(config.output, TextVector):
            return ()
        return tensors_of((*MASKED.values(), *LABELS.values()))

    def labels(self, config: ModelConfig, names: tuple[str, ...]) -> Classify:
        stack = expect_encoder(config).encoder
        return label_head(names, stack.width, stack.dropout)

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "attention_dropout", 0.1)


def label_head(names: tuple[str, ...], width: int, dropout: float) -> Classify:
    return Classify(labels=names, pooling=First(), hidden=width, activation="relu", dropout=dropout)
