"""BERT (Devlin et al. 2019), and the sentence encoders built on it."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.checkpoints.config_fields import BENT, activation_name, feed_forward
from qkv.checkpoints.families import (
    SENTENCE,
    Heads,
    architecture,
    head_of,
    labels_of,
    output_fields,
)
from qkv.checkpoints.format import Given, Layout, expect_encoder, told_dropout
from qkv.checkpoints.tensor_names import Table
from qkv.errors import ConfigError
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
    "embedding.types": "embeddings.token_type_embeddings.weight",
    "encoder.position.weight": "embeddings.position_embeddings.weight",
    "encoder.norm_in": "embeddings.LayerNorm",
    "encoder.{i}.attention.query": "encoder.layer.{i}.attention.self.query",
    "encoder.{i}.attention.key": "encoder.layer.{i}.attention.self.key",
    "encoder.{i}.attention.value": "encoder.layer.{i}.attention.self.value",
    "encoder.{i}.attention.output": "encoder.layer.{i}.attention.output.dense",
    "encoder.{i}.attention_out": "encoder.layer.{i}.attention.output.LayerNorm",
    "encoder.{i}.feed_forward.up": "encoder.layer.{i}.intermediate.dense",
    "encoder.{i}.feed_forward.down": "encoder.layer.{i}.output.dense",
    "encoder.{i}.feed_forward_out": "encoder.layer.{i}.output.LayerNorm",
}
HEADS = Heads(
    place="cls.predictions",
    masked={
        "output.change.0": "cls.predictions.transform.dense",
        "output.change.2": "cls.predictions.transform.LayerNorm",
    },
    pooler={"output.change.0": "pooler.dense"},
    labels={"output.change.0": "pooler.dense", "output.output.1": "classifier"},
)


class Bert(Layout):
    kinds: ClassVar[tuple[str, ...]] = ("bert",)
    title = "BERT, and sentence encoders on it"
    families: ClassVar[tuple[str, ...]] = ("Bert",)
    pooled = True
    body = BODY
    heads = HEADS
    prefix = "bert."
    head = ("cls.", "classifier.")
    leftovers: ClassVar[tuple[str, ...]] = (
        r"embeddings\.position_ids",
        r"cls\.seq_relationship\.(weight|bias)",
    )
    architectures: ClassVar[tuple[str, ...]] = (
        "Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification",
    )  # fmt: skip

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        given.must_be("position_embedding_type", ["absolute"], "cannot be carried; absolute can")
        given.must_be("is_decoder", [False], "makes it a decoder, which cannot be carried")
        norm = LayerNorm(eps=given.positive("layer_norm_eps", 1e-12))
        width = given.size("hidden_size")
        heads = given.size("num_attention_heads")
        dropout = given.share("hidden_dropout_prob", 0.1)
        stack = Stack(
            layers=given.layers("num_hidden_layers"),
            width=width,
            attention=MultiHead(heads=heads),
            feed_forward=feed_forward(
                given, "hidden_act", given.size("intermediate_size"), bias=True
            ),
            position=Learned(),
            norm=norm,
            norm_placement=PostNorm(),
            input_norm=norm,
            dropout=dropout,
        )
        return EncoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(
                vocabulary=given.size("vocab_size"), token_types=given.size("type_vocab_size", 2)
            ),
            encoder=stack,
            output=self.output(given, width, norm, dropout),
        )

    def output(self, given: Given, width: int, norm: LayerNorm, dropout: float) -> Output:
        head = head_of(given)
        if head == "masked":
            tied = given.flag("tie_word_embeddings", True)
            bend = given.one_of("hidden_act", BENT, "gelu")
            return MaskedToken(tied=tied, norm=norm, activation=bend)
        if head == "labels":
            rate = given.share("classifier_dropout", dropout)
            return label_head(labels_of(given), width, rate)
        if head == "pooler":
            return TextVector(pooling=First(), dense=True, normalize=False)
        return SENTENCE

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_encoder(config)
        stack = config.encoder
        output = config.output
        if not config.embedding.token_types:
            raise ConfigError("this layout has token types")
        return {
            "model_type": self.kinds[0],
            "architectures": [architecture(self.families[0], output)],
            "vocab_size": config.embedding.vocabulary,
            "type_vocab_size": config.embedding.token_types,
            "hidden_size": stack.width,
            "num_hidden_layers": stack.layers,
            "num_attention_heads": stack.attention.heads,
            "intermediate_size": stack.feed_forward.width,
            "hidden_act": activation_name(stack.feed_forward),
            "max_position_embeddings": config.length,
            "layer_norm_eps": stack.norm.eps,
            "hidden_dropout_prob": stack.dropout,
            "attention_probs_dropout_prob": 0.0,
            "position_embedding_type": "absolute",
            **output_fields(output, "classifier_dropout"),
        }

    def table(self, config: ModelConfig) -> Table:
        return self.body | self.heads.table(config.output)

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        return self.heads.twins(config.output, str(self.body["embedding.weight"]))

    def copies(self, config: ModelConfig) -> Mapping[str, str]:
        return self.heads.copies(config.output)

    def unused(self, config: ModelConfig) -> tuple[str, ...]:
        return self.heads.unused(config.output)

    def labels(self, config: ModelConfig, names: tuple[str, ...]) -> Classify:
        stack = expect_encoder(config).encoder
        return label_head(names, stack.width, stack.dropout)

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "attention_probs_dropout_prob", 0.1)


def label_head(names: tuple[str, ...], width: int, dropout: float) -> Classify:
    return Classify(labels=names, pooling=First(), hidden=width, dropout=dropout)
