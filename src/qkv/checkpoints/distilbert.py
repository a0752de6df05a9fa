"""DistilBERT (Sanh et al. 2019): BERT without token types and pooler, with its own tensor names."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import ACTIVATIONS, activation_name, read_feed_forward
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    MEAN_VECTOR,
    class_name,
    head_name,
    label_names,
    output_fields,
    tensor_patterns,
)
from qkv.checkpoints.format import CheckpointFormat, attention_dropout_note, require_encoder
from qkv.checkpoints.tensor_names import TensorMap
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
# Heads have tensors at the top level, without a common prefix.
MASKED: TensorMap = {
    "output.change.0": "vocab_transform",
    "output.change.2": "vocab_layer_norm",
    "output.output": "vocab_projector",
}
LABELS: TensorMap = {"output.change.0": "pre_classifier", "output.output.1": "classifier"}
NORM = LayerNorm(eps=1e-12)  # fixed: the config has no field for it


class DistilBert(CheckpointFormat):
    model_types = ("distilbert",)
    title = "DistilBERT, and sentence encoders on it"
    class_prefixes = ("DistilBert",)
    prefix = "distilbert."
    head_prefixes = ("vocab_", "pre_classifier.", "classifier.")
    obsolete_tensors = (r"embeddings\.position_ids",)
    class_suffixes = ("Model", "ForMaskedLM", "ForSequenceClassification")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        width = reader.size("dim")
        stack = Stack(
            layers=reader.layers("n_layers"),
            width=width,
            attention=MultiHead(heads=reader.size("n_heads")),
            feed_forward=read_feed_forward(
                reader, "activation", reader.size("hidden_dim"), bias=True
            ),
            position=Learned(),  # sinusoidal ones are stored as weights too
            norm=NORM,
            norm_placement=PostNorm(),
            input_norm=NORM,
            dropout=reader.fraction("dropout", 0.1),
        )
        return EncoderOnly(
            length=reader.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=reader.size("vocab_size")),
            encoder=stack,
            output=self.read_output(reader, width),
        )

    def read_output(self, reader: ConfigReader, width: int) -> Output:
        head = head_name(reader)
        if head == "masked":
            tied = reader.flag("tie_word_embeddings", True)
            activation = reader.one_of("activation", ACTIVATIONS, "gelu")
            return MaskedToken(tied=tied, norm=NORM, activation=activation)
        if head == "labels":
            dropout = reader.fraction("seq_classif_dropout", 0.2)
            return classification_head(label_names(reader), width, dropout)
        return MEAN_VECTOR

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder(config)
        stack = config.encoder
        output = config.output
        return {
            "model_type": self.model_types[0],
            "architectures": [class_name(self.class_prefixes[0], output)],
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

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        if isinstance(config.output, MaskedToken):
            return BODY | MASKED
        return BODY | LABELS

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        if isinstance(config.output, MaskedToken) and config.output.tied:
            return {"vocab_projector.weight": "embeddings.word_embeddings.weight"}
        return {}

    def unused_tensors(self, config: ModelConfig) -> tuple[str, ...]:
        if not isinstance(config.output, TextVector):
            return ()
        return tensor_patterns((*MASKED.values(), *LABELS.values()))

    def classification_output(self, config: ModelConfig, labels: tuple[str, ...]) -> Classify:
        stack = require_encoder(config).encoder
        return classification_head(labels, stack.width, stack.dropout)

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_dropout", 0.1)


def classification_head(labels: tuple[str, ...], width: int, dropout: float) -> Classify:
    """A dense layer and ReLU on the first token, dropout, and a linear layer."""
    return Classify(
        labels=labels, pooling=First(), hidden=width, activation="relu", dropout=dropout
    )
