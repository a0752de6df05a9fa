"""T5 (Raffel et al. 2020), its successors v1.1 and Flan-T5, and mT5 (Xue et al. 2021).

Positions are learned biases on attention scores, one per bucket of relative distance; scores are
not divided by √head_width, which is folded into the initialization instead.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, is_gated, read_feed_forward
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import embedding_aliases, embedding_map, has_tied_output
from qkv.checkpoints.format import CheckpointFormat, attention_dropout_note, require_encoder_decoder
from qkv.checkpoints.tensor_names import TensorMap
from qkv.errors import ConfigError
from qkv.model import (
    Embedding,
    EncoderDecoder,
    ModelConfig,
    MultiHead,
    NextToken,
    PreNorm,
    RelativeBuckets,
    RMSNorm,
    Stack,
)

# The number of each part within a block, and the name of its module.
BLOCK_LAYERS = {
    "encoder": {"attention": (0, "SelfAttention"), "feed_forward": (1, "DenseReluDense")},
    "decoder": {
        "attention": (0, "SelfAttention"),
        "cross": (1, "EncDecAttention"),
        "feed_forward": (2, "DenseReluDense"),
    },
}
ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}
FEED_FORWARD = {"up": "wi", "down": "wo"}
GATED_FEED_FORWARD = {"gate": "wi_0", "up": "wi_1", "down": "wo"}


class T5(CheckpointFormat):
    model_types = ("t5", "mt5")
    title = "T5, Flan-T5, mT5"
    class_prefixes = ("T5", "MT5")
    head_prefixes = ("lm_head.",)
    # Cross-attention has no position bias; some old files store one nevertheless.
    obsolete_tensors = (
        r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    )
    class_suffixes = ("ForConditionalGeneration", "WithLMHeadModel", "Model")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        reader.require(
            "is_encoder_decoder",
            [True],
            "makes it only a decoder or an encoder and is not supported",
        )
        layers = reader.layers("num_layers")
        multiplier = 1.0
        if _scales_output(reader):
            multiplier = reader.size("d_model") ** -0.5
        return EncoderDecoder(
            length=reader.size("n_positions", 512),  # the length in training, not a limit
            embedding=Embedding(vocabulary=reader.size("vocab_size")),
            encoder=_read_stack(reader, layers, bidirectional=True),
            decoder=_read_stack(
                reader, reader.layers("num_decoder_layers", layers), bidirectional=False
            ),
            output=NextToken(tied=has_tied_output(reader, tensors), multiplier=multiplier),
        )

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder_decoder(config)
        stack = config.encoder
        attention = stack.attention
        position = stack.position
        if not isinstance(position, RelativeBuckets):
            raise ConfigError(f"this format needs relative buckets, not {position.kind} positions")
        gated = is_gated(stack.feed_forward)
        activation = activation_name(stack.feed_forward, gated)
        projection = activation
        if gated:
            projection = f"gated-{activation.removesuffix('_new')}"
        return {
            "model_type": self.model_types[0],
            "architectures": ["T5ForConditionalGeneration"],
            "is_encoder_decoder": True,
            "vocab_size": config.embedding.vocabulary,
            "n_positions": config.length,
            "d_model": stack.width,
            "d_kv": attention.key_width(stack.width),
            "d_ff": stack.feed_forward.width,
            "num_layers": stack.layers,
            "num_decoder_layers": config.decoder.layers,
            "num_heads": attention.heads,
            "relative_attention_num_buckets": position.buckets,
            "relative_attention_max_distance": position.max_distance,
            "layer_norm_epsilon": stack.norm.eps,
            "dropout_rate": stack.dropout,
            "feed_forward_proj": projection,
            "dense_act_fn": activation,
            "is_gated_act": gated,
            "tie_word_embeddings": config.output.tied,
            "scale_decoder_outputs": config.output.multiplier != 1.0,
        }

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        if is_gated(require_encoder_decoder(config).encoder.feed_forward):
            return embedding_map(config) | _block_map(GATED_FEED_FORWARD)
        return embedding_map(config) | _block_map(FEED_FORWARD)

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        return embedding_aliases(config)

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "dropout_rate", 0.1)


def _read_stack(reader: ConfigReader, layers: int, bidirectional: bool) -> Stack:
    width = reader.size("d_model")
    heads = reader.size("num_heads")
    head_width = reader.size("d_kv")
    return Stack(
        layers=layers,
        width=width,
        attention=MultiHead(
            heads=heads,
            head_width=None if head_width * heads == width else head_width,
            bias=False,
            output_bias=False,
            scale=1.0,  # not 1 / √head_width, see the docstring of this module
        ),
        feed_forward=_read_feed_forward(reader),
        position=RelativeBuckets(
            buckets=reader.size("relative_attention_num_buckets", 32),
            max_distance=reader.size("relative_attention_max_distance", 128),
            bidirectional=bidirectional,
        ),
        norm=RMSNorm(eps=reader.positive("layer_norm_epsilon", 1e-6)),
        norm_placement=PreNorm(),
        dropout=reader.fraction("dropout_rate", 0.1),
    )


def _read_feed_forward(reader: ConfigReader) -> Any:
    """`feed_forward_proj` sets gate and activation; `is_gated_act`, `dense_act_fn` override it."""
    default = "gated-gelu" if reader.string("model_type") == "mt5" else "relu"
    projection = reader.string("feed_forward_proj", default)
    activation = projection.removeprefix("gated-")
    if projection == "gated-gelu":  # transformers means the tanh approximation here
        activation = "gelu_new"
    gated = reader.flag("is_gated_act", projection.startswith("gated-"))
    fields = {"dense_act_fn": reader.string("dense_act_fn", activation)}
    return read_feed_forward(
        ConfigReader(fields, reader.location),
        "dense_act_fn",
        reader.size("d_ff"),
        bias=False,
        gated=gated,
    )


def _scales_output(reader: ConfigReader) -> bool:
    """Whether states are divided by √width before the LM head, as in the first T5.

    Before there was a field for it, the untied LM head of the successors was the sign.
    """
    if reader.string("model_type") == "mt5":
        return False
    return reader.flag("scale_decoder_outputs", reader.flag("tie_word_embeddings", True))


def _block_map(feed_forward: Mapping[str, str]) -> TensorMap:
    tensor_map: TensorMap = {}
    for side, parts in BLOCK_LAYERS.items():
        for part, (number, module) in parts.items():
            layer = f"{side}.block.{{i}}.layer.{number}"
            tensor_map[f"{side}.{{i}}.{part}_in"] = f"{layer}.layer_norm"
            matrices = feed_forward if part == "feed_forward" else ATTENTION
            for ours, public in matrices.items():
                tensor_map[f"{side}.{{i}}.{part}.{ours}"] = f"{layer}.{module}.{public}"
        # Only the first layer stores the position bias; the others share it.
        first = f"{side}.block.0.layer.0.SelfAttention"
        tensor_map[f"{side}.position.weight"] = f"{first}.relative_attention_bias.weight"
        tensor_map[f"{side}.norm_out"] = f"{side}.final_layer_norm"
    return tensor_map
