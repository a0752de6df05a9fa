"""BERT (Devlin et al. 2019), and the sentence encoders built on it."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.checkpoints.config_fields import ACTIVATIONS, activation_name, read_feed_forward
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    MEAN_VECTOR,
    EncoderHeads,
    class_name,
    head_name,
    label_names,
    output_fields,
)
from qkv.checkpoints.format import CheckpointFormat, attention_dropout_note, require_encoder
from qkv.checkpoints.tensor_names import TensorMap
from qkv.errors import ConfigError
from qkv.model import (
    Classify,
    Embedding,
    EncoderOnly,
    First,
    LayerNorm,
    Learned,
    MaskedToken,
    ModelConfig,
    MultiHead,
    Output,
    PostNorm,
    Stack,
    TextVector,
)

BODY: TensorMap = {
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
HEADS = EncoderHeads(
    mlm="cls.predictions",
    masked={
        "output.change.0": "cls.predictions.transform.dense",
        "output.change.2": "cls.predictions.transform.LayerNorm",
    },
    pooler={"output.change.0": "pooler.dense"},
    labels={"output.change.0": "pooler.dense", "output.output.1": "classifier"},
)


class Bert(CheckpointFormat):
    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    title = "BERT, and sentence encoders on it"
    class_prefixes: ClassVar[tuple[str, ...]] = ("Bert",)
    has_pooler = True
    body = BODY
    heads = HEADS
    prefix = "bert."
    head_prefixes = ("cls.", "classifier.")
    obsolete_tensors: ClassVar[tuple[str, ...]] = (
        r"embeddings\.position_ids",
        r"cls\.seq_relationship\.(weight|bias)",  # next-sentence prediction, only for pretraining
    )
    class_suffixes: ClassVar[tuple[str, ...]] = (
        "Model",
        "ForMaskedLM",
        "ForPreTraining",
        "ForSequenceClassification",
    )

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        reader.require(
            "position_embedding_type", ["absolute"], "is not supported; only absolute is"
        )
        reader.require("is_decoder", [False], "makes it a decoder and is not supported")
        norm = LayerNorm(eps=reader.positive("layer_norm_eps", 1e-12))
        width = reader.size("hidden_size")
        heads = reader.size("num_attention_heads")
        dropout = reader.fraction("hidden_dropout_prob", 0.1)
        stack = Stack(
            layers=reader.layers("num_hidden_layers"),
            width=width,
            attention=MultiHead(heads=heads),
            feed_forward=read_feed_forward(
                reader, "hidden_act", reader.size("intermediate_size"), bias=True
            ),
            position=Learned(),
            norm=norm,
            norm_placement=PostNorm(),
            input_norm=norm,
            dropout=dropout,
        )
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
        head = head_name(reader)
        if head == "masked":
            tied = reader.flag("tie_word_embeddings", True)
            activation = reader.one_of("hidden_act", ACTIVATIONS, "gelu")
            return MaskedToken(tied=tied, norm=norm, activation=activation)
        if head == "labels":
            rate = reader.fraction("classifier_dropout", dropout)
            return classification_head(label_names(reader), width, rate)
        if head == "pooler":
            return TextVector(pooling=First(), dense=True, normalize=False)
        return MEAN_VECTOR

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder(config)
        stack = config.encoder
        output = config.output
        if not config.embedding.token_types:
            raise ConfigError("this format needs token types")
        return {
            "model_type": self.model_types[0],
            "architectures": [class_name(self.class_prefixes[0], output)],
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

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        return self.body | self.heads.tensor_map(config.output)

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        return self.heads.aliases(config.output, str(self.body["embedding.weight"]))

    def duplicates(self, config: ModelConfig) -> Mapping[str, str]:
        return self.heads.duplicates(config.output)

    def unused_tensors(self, config: ModelConfig) -> tuple[str, ...]:
        return self.heads.unused_tensors(config.output)

    def classification_output(self, config: ModelConfig, labels: tuple[str, ...]) -> Classify:
        stack = require_encoder(config).encoder
        return classification_head(labels, stack.width, stack.dropout)

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_probs_dropout_prob", 0.1)


def classification_head(labels: tuple[str, ...], width: int, dropout: float) -> Classify:
    """The pooler (dense layer and tanh on the first token), dropout, and a linear layer."""
    return Classify(labels=labels, pooling=First(), hidden=width, dropout=dropout)
