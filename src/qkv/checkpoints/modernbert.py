"""ModernBERT (Warner et al. 2024): rotary positions, and local attention on two layers of three.

Global and local layers have RoPE bases of their own, in `rope_parameters` or in older fields.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import (
    ACTIVATIONS,
    activation_name,
    head_activation_name,
    read_feed_forward,
    read_rope,
    rope_fields,
)
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    FULL,
    MEAN_VECTOR,
    SLIDING,
    class_name,
    head_name,
    label_names,
    layer_types,
    output_fields,
    read_sliding_layers,
    require_full_rotary,
    tensor_patterns,
)
from qkv.checkpoints.format import (
    CheckpointFormat,
    attention_dropout_note,
    require_encoder,
    require_multi_head,
    require_rope,
)
from qkv.checkpoints.tensor_names import SplitRows, TensorMap
from qkv.model import (
    ActivationName,
    Classify,
    Embedding,
    EncoderOnly,
    First,
    LayerNorm,
    LocalAttention,
    MaskedToken,
    Mean,
    ModelConfig,
    MultiHead,
    Output,
    Pooling,
    PreNorm,
    Rope,
    Stack,
    TextVector,
)

BODY: TensorMap = {
    "embedding.weight": "embeddings.tok_embeddings.weight",
    "encoder.norm_in": "embeddings.norm",
    "encoder.{i}.attention_in": "layers.{i}.attn_norm",
    (
        "encoder.{i}.attention.query",
        "encoder.{i}.attention.key",
        "encoder.{i}.attention.value",
    ): SplitRows("layers.{i}.attn.Wqkv"),
    "encoder.{i}.attention.output": "layers.{i}.attn.Wo",
    "encoder.{i}.feed_forward_in": "layers.{i}.mlp_norm",
    # Wi holds the activated half first, then the linear one.
    ("encoder.{i}.feed_forward.gate", "encoder.{i}.feed_forward.up"): SplitRows(
        "layers.{i}.mlp.Wi"
    ),
    "encoder.{i}.feed_forward.down": "layers.{i}.mlp.Wo",
    "encoder.norm_out": "final_norm",
}
HEADS: TensorMap = {
    "output.change.0": "head.dense",
    "output.change.2": "head.norm",
    "output.output": "decoder",
    "output.output.1": "classifier",
}
# The older field for the RoPE base of each type of layer, and its default.
ROPE_BASES = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}
ROPE_FIELDS = ("rope_parameters", "rope_scaling", "max_position_embeddings")
# The pooling of the classifier.
POOLINGS: dict[str, Pooling] = {"cls": First(), "mean": Mean()}
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")


class ModernBert(CheckpointFormat):
    model_types = ("modernbert",)
    title = "ModernBERT, and sentence encoders on it"
    class_prefixes = ("ModernBert",)
    prefix = "model."
    head_prefixes = ("head.", "decoder.", "classifier.")
    class_suffixes = ("Model", "ForMaskedLM", "ForSequenceClassification")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        norm = LayerNorm(
            eps=reader.positive("norm_eps", 1e-5), bias=reader.flag("norm_bias", False)
        )
        width = reader.size("hidden_size")
        inner = reader.size("intermediate_size")
        bias = reader.flag("attention_bias", False)
        mlp_bias = reader.flag("mlp_bias", False)
        stack = Stack(
            layers=reader.layers("num_hidden_layers"),
            width=width,
            attention=MultiHead(
                heads=reader.size("num_attention_heads"), bias=bias, output_bias=bias
            ),
            feed_forward=read_feed_forward(
                reader, "hidden_activation", inner, bias=mlp_bias, gated=True
            ),
            position=_read_rope(reader, FULL),
            norm=norm,
            # The norm on the embeddings stands in for that of the first attention.
            norm_placement=PreNorm(skip_first_norm=True),
            input_norm=norm,
            local=_read_window(reader),
            dropout=reader.fraction("mlp_dropout", 0.0),
        )
        return EncoderOnly(
            length=reader.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=reader.size("vocab_size")),
            encoder=stack,
            output=self.read_output(reader, width, norm),
        )

    def read_output(self, reader: ConfigReader, width: int, norm: LayerNorm) -> Output:
        head = head_name(reader)
        if head == "vector":
            return MEAN_VECTOR
        bias = reader.flag("classifier_bias", False)
        activation: ActivationName = reader.one_of("classifier_activation", ACTIVATIONS, "gelu")
        if head == "masked":
            return MaskedToken(
                tied=reader.flag("tie_word_embeddings", True),
                norm=norm,
                bias=bias,
                logit_bias=reader.flag("decoder_bias", True),
                activation=activation,
            )
        return Classify(
            labels=label_names(reader),
            pooling=reader.one_of("classifier_pooling", POOLINGS, "cls"),
            hidden=width,
            hidden_bias=bias,
            activation=activation,
            norm=norm,
            dropout=reader.fraction("classifier_dropout", 0.0),
        )

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder(config)
        stack = config.encoder
        return {
            "model_type": self.model_types[0],
            "architectures": [class_name(self.class_prefixes[0], config.output)],
            "vocab_size": config.embedding.vocabulary,
            "hidden_size": stack.width,
            "num_hidden_layers": stack.layers,
            "num_attention_heads": stack.attention.heads,
            "intermediate_size": stack.feed_forward.width,
            "hidden_activation": activation_name(stack.feed_forward, gated=True),
            "max_position_embeddings": config.length,
            "norm_eps": stack.norm.eps,
            "norm_bias": isinstance(stack.norm, LayerNorm) and stack.norm.bias,
            "attention_bias": require_multi_head(stack).bias,
            "mlp_bias": stack.feed_forward.bias,
            "mlp_dropout": stack.dropout,
            "embedding_dropout": stack.dropout,
            "attention_dropout": 0.0,
            **_position_fields(stack),
            **_head_fields(config.output),
            # null, because the defaults of transformers may lie beyond the vocabulary
            **dict.fromkeys(TOKEN_IDS),
        }

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        return BODY | HEADS

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        if isinstance(config.output, MaskedToken) and config.output.tied:
            return {"decoder.weight": "embeddings.tok_embeddings.weight"}
        return {}

    def unused_tensors(self, config: ModelConfig) -> tuple[str, ...]:
        if not isinstance(config.output, TextVector):
            return ()
        return tensor_patterns(HEADS.values())

    def classification_output(self, config: ModelConfig, labels: tuple[str, ...]) -> Classify:
        stack = require_encoder(config).encoder
        return Classify(
            labels=labels,
            pooling=Mean(),
            hidden=stack.width,
            hidden_bias=False,
            activation="gelu",
            norm=stack.norm,
        )

    def notes(self, reader: ConfigReader) -> list[str]:
        notes = attention_dropout_note(reader, "attention_dropout", 0.0)
        rate = reader.fraction("embedding_dropout", 0.0)
        if rate != reader.fraction("mlp_dropout", 0.0):
            notes.append(f"dropout of embeddings ({rate:g}), only used in training")
        return notes


def _read_rope(reader: ConfigReader, layer_type: str) -> Rope:
    """The rotary positions of one type of layer."""
    parameters = reader.section("rope_parameters").fields
    if not parameters.keys() <= {FULL, SLIDING}:
        expected = f"an object for {FULL} and one for {SLIDING}"
        raise reader.error("rope_parameters", parameters, expected)
    name, base = ROPE_BASES[layer_type]
    if name in reader.fields:  # null is not the default but an error
        base = reader.positive(name)
    fields = {name: reader.fields[name] for name in ROPE_FIELDS if name in reader.fields}
    position = read_rope(ConfigReader(fields, reader.location), layer_type, base)
    return require_full_rotary(position, reader)


def _read_window(reader: ConfigReader) -> LocalAttention | None:
    """The layers with local attention; the window is symmetric around each position."""
    layers = reader.layers("num_hidden_layers")
    period = reader.size("global_attn_every_n_layers", 3)
    sliding = tuple(read_sliding_layers(reader, layers, lambda i: i % period > 0))
    if not sliding:
        return None
    radius = reader.size("local_attention", 128) // 2
    position = _read_rope(reader, SLIDING)
    return LocalAttention(
        before=radius,
        after=radius,
        layers=None if len(sliding) == layers else sliding,
        position=None if position == _read_rope(reader, FULL) else position,
    )


def _position_fields(stack: Stack) -> dict[str, Any]:
    """The fields of rotary positions and windows."""
    position = require_rope(stack)
    rope_parameters = {FULL: rope_fields(position)}
    fields: dict[str, Any] = {"layer_types": layer_types(stack)}
    if stack.local is not None:
        # The whole window; 1 is halved to a radius of 0 on reading.
        fields["local_attention"] = 2 * stack.local.before or 1
        rope_parameters[SLIDING] = rope_fields(stack.local.position or position)
    fields["rope_parameters"] = rope_parameters
    return fields


def _head_fields(output: Output) -> dict[str, Any]:
    if isinstance(output, MaskedToken):
        return {
            "tie_word_embeddings": output.tied,
            "classifier_bias": output.bias,
            "decoder_bias": output.logit_bias,
            "classifier_activation": head_activation_name(output.activation),
        }
    if isinstance(output, Classify):
        pooling = "mean" if output.pooling == POOLINGS["mean"] else "cls"
        return {
            "classifier_pooling": pooling,
            "classifier_bias": output.hidden_bias,
            "classifier_activation": head_activation_name(output.activation),
            **output_fields(output, "classifier_dropout"),
        }
    return {}
