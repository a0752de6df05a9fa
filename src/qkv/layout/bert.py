"""BERT (Devlin et al. 2019), and the sentence encoders built on it."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.layout.activations import BENT, activation_name, feed_forward
from qkv.layout.encoders import (
    SENTENCE,
    architecture,
    dropped_attention,
    expect_encoder,
    head_of,
    label_fields,
    labels_of,
    masked_copies,
    masked_twins,
)
from qkv.layout.given import Given
from qkv.layout.layout import Layout
from qkv.layout.names import Table
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
from qkv.model.family import Config
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
MASKED: Table = {
    "output.change.0": "cls.predictions.transform.dense",
    "output.change.2": "cls.predictions.transform.LayerNorm",
    "output.output.bias": "cls.predictions.bias",
}
UNUSED_POOLER = r"pooler\.dense\.(weight|bias)"
UNUSED_HEADS = (
    r"cls\.predictions\.(bias|(decoder|transform\.(dense|LayerNorm))\.(weight|bias))",
    r"classifier\.(weight|bias)",
)
POOLED: Table = {"output.change.0": "pooler.dense", "output.output.1": "classifier"}


class Bert(Layout):
    kinds: ClassVar[tuple[str, ...]] = ("bert",)
    title = "BERT, and sentence encoders on it"
    family = "Bert"
    prefix = "bert."
    head = ("cls.", "classifier.")
    leftovers: ClassVar[tuple[str, ...]] = (
        r"embeddings\.position_ids",
        r"cls\.seq_relationship\.(weight|bias)",
    )
    architectures: ClassVar[tuple[str, ...]] = (
        "Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification",
    )  # fmt: skip

    def config(self, given: Given, tensors: Collection[str]) -> Config:
        given.must_be("position_embedding_type", ["absolute"], "cannot be carried; absolute can")
        given.must_be("is_decoder", [False], "makes it a decoder, which cannot be carried")
        norm = LayerNorm(eps=given.positive("layer_norm_eps", 1e-12))
        width, heads = given.size("hidden_size"), given.size("num_attention_heads")
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
            residual=PostNorm(),
            input_norm=norm,
            dropout=dropout,
        )
        return EncoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(
                vocabulary=given.size("vocab_size"), types=given.size("type_vocab_size", 2)
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
            return Classify(labels=labels_of(given), pooling=First(), hidden=width, dropout=rate)
        if head == "pooler":
            return TextVector(pooling=First(), dense=True, unit=False)
        return SENTENCE

    def fields(self, config: Config) -> dict[str, Any]:
        config = expect_encoder(config)
        stack, output = config.encoder, config.output
        dropout = getattr(output, "dropout", None)
        return {
            "model_type": self.kinds[0],
            "architectures": [architecture(self.family, output)],
            "vocab_size": config.embedding.vocabulary,
            "type_vocab_size": config.embedding.types,
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
            "tie_word_embeddings": getattr(output, "tied", True),
            **({} if dropout is None else {"classifier_dropout": dropout}),
            **label_fields(output),
        }

    def table(self, config: Config) -> Table:
        if not isinstance(config.output, MaskedToken):
            return BODY | POOLED
        own: Table = {} if config.output.tied else {"output.output": "cls.predictions.decoder"}
        return BODY | own | MASKED

    def twins(self, config: Config) -> Mapping[str, str]:
        return masked_twins(config.output, "cls.predictions", "embeddings.word_embeddings.weight")

    def copies(self, config: Config) -> Mapping[str, str]:
        return masked_copies(config.output, "cls.predictions")

    def unused(self, config: Config) -> tuple[str, ...]:
        if isinstance(config.output, MaskedToken):
            return (UNUSED_POOLER, r"cls\.predictions\.bias")
        if isinstance(config.output, TextVector):
            return UNUSED_HEADS if config.output.dense else (UNUSED_POOLER, *UNUSED_HEADS)
        return ()

    def notes(self, given: Given) -> list[str]:
        return dropped_attention(given, "attention_probs_dropout_prob", 0.1)
