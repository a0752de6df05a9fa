"""Llama (Touvron et al. 2023) and the models in its format: Mistral, Qwen, SmolLM, Apertus.

They differ in few options: Mistral has a window on every layer, Qwen2 biases on q, k and v, Qwen3
an RMSNorm on queries and keys. Apertus (Hernández-Cano et al. 2025) has that norm too, a
feed-forward without a gate, and other names for two norms. On export these options select the
model_type.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, is_gated, read_feed_forward, read_rope
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    decoder_fields,
    layer_types,
    lm_head_alias,
    local_attention,
    read_head_width,
    read_kv_heads,
    read_sliding_layers,
    read_window_size,
    require_full_rotary,
)
from qkv.checkpoints.format import (
    CheckpointFormat,
    attention_dropout_note,
    require_decoder,
    require_multi_head,
)
from qkv.checkpoints.tensor_names import TensorMap
from qkv.model import (
    DecoderOnly,
    Embedding,
    LocalAttention,
    ModelConfig,
    MultiHead,
    NextToken,
    PreNorm,
    RMSNorm,
    Stack,
)

CLASSES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "apertus": "Apertus",
}
QWEN = ("qwen2", "qwen3")
QK_NORM = ("qwen3", "apertus")
OPTIONAL_BIAS = ("llama", "qwen3", "apertus")
QWEN3_HEAD_WIDTH = 128  # if the config has no head_dim
QWEN_WINDOW_START = 28  # the first layer with a window, if the config does not set it
TENSOR_MAP: TensorMap = {
    "embedding.weight": "embed_tokens.weight",
    "decoder.{i}.attention_in": "layers.{i}.input_layernorm",
    "decoder.{i}.attention.query": "layers.{i}.self_attn.q_proj",
    "decoder.{i}.attention.key": "layers.{i}.self_attn.k_proj",
    "decoder.{i}.attention.value": "layers.{i}.self_attn.v_proj",
    "decoder.{i}.attention.query_norm": "layers.{i}.self_attn.q_norm",
    "decoder.{i}.attention.key_norm": "layers.{i}.self_attn.k_norm",
    "decoder.{i}.attention.output": "layers.{i}.self_attn.o_proj",
    "decoder.{i}.feed_forward_in": "layers.{i}.post_attention_layernorm",
    "decoder.{i}.feed_forward.gate": "layers.{i}.mlp.gate_proj",
    "decoder.{i}.feed_forward.up": "layers.{i}.mlp.up_proj",
    "decoder.{i}.feed_forward.down": "layers.{i}.mlp.down_proj",
    "decoder.norm_out": "norm",
    "output.weight": "lm_head.weight",
}
APERTUS_NORMS: TensorMap = {
    "decoder.{i}.attention_in": "layers.{i}.attention_layernorm",
    "decoder.{i}.feed_forward_in": "layers.{i}.feedforward_layernorm",
}


class Llama(CheckpointFormat):
    model_types = tuple(CLASSES)
    title = "Llama, Mistral, Qwen2, Qwen3, SmolLM, Apertus"
    class_prefixes = tuple(CLASSES.values())
    prefix = "model."
    head_prefixes = ("lm_head.",)
    # RoPE frequencies, which old versions of transformers stored and newer ones compute.
    obsolete_tensors = (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    class_suffixes = ("ForCausalLM", "Model")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        layers = reader.layers("num_hidden_layers")
        model_type = reader.string("model_type")
        norm = RMSNorm(eps=reader.positive("rms_norm_eps", 1e-6))
        stack = Stack(
            layers=layers,
            width=reader.size("hidden_size"),
            attention=_read_attention(reader, model_type, norm),
            feed_forward=read_feed_forward(
                reader,
                "hidden_act",
                reader.size("intermediate_size"),
                bias=model_type == "llama" and reader.flag("mlp_bias", False),
                gated=model_type != "apertus",
                default="xielu" if model_type == "apertus" else "silu",
            ),
            position=require_full_rotary(read_rope(reader), reader),
            norm=norm,
            norm_placement=PreNorm(),
            local=_read_window(reader, model_type, layers),
        )
        return DecoderOnly(
            length=reader.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=reader.size("vocab_size")),
            decoder=stack,
            output=NextToken(tied=reader.flag("tie_word_embeddings", False)),
        )

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_decoder(config)
        stack = config.decoder
        model_type = _model_type(stack)
        return {
            "model_type": model_type,
            "architectures": [f"{CLASSES[model_type]}ForCausalLM"],
            **decoder_fields(config),
            "attention_bias": require_multi_head(stack).output_bias,
            "mlp_bias": stack.feed_forward.bias,
            "hidden_act": activation_name(stack.feed_forward, is_gated(stack.feed_forward)),
            **_window_fields(stack, model_type),
        }

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        if is_gated(require_decoder(config).decoder.feed_forward):
            return TENSOR_MAP
        return TENSOR_MAP | APERTUS_NORMS

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        return lm_head_alias(config, "embed_tokens.weight")

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_dropout", 0.0)


def _model_type(stack: Stack) -> str:
    """The model_type that has these options."""
    attention = require_multi_head(stack)
    if not is_gated(stack.feed_forward):
        return "apertus"
    if attention.qk_norm is not None:
        return "qwen3"
    if attention.bias and not attention.output_bias:
        return "qwen2"
    if stack.local is None:
        return "llama"
    return "mistral"


def _read_attention(reader: ConfigReader, model_type: str, norm: RMSNorm) -> MultiHead:
    heads = reader.size("num_attention_heads")
    default_width = QWEN3_HEAD_WIDTH if model_type == "qwen3" else None
    # Mistral has no biases and Qwen2 always has them, whatever attention_bias is set to.
    bias = model_type in OPTIONAL_BIAS and reader.flag("attention_bias", False)
    return MultiHead(
        heads=heads,
        kv_heads=read_kv_heads(reader, heads),
        head_width=read_head_width(reader, heads, default_width),
        bias=bias or model_type == "qwen2",
        output_bias=bias,
        qk_norm=norm if model_type in QK_NORM else None,
    )


def _read_window(reader: ConfigReader, model_type: str, layers: int) -> LocalAttention | None:
    """Mistral has a window on every layer, Qwen from some layer on if it is enabled."""
    if model_type in ("llama", "apertus"):
        return None
    if model_type == "mistral":
        return local_attention(read_window_size(reader), range(layers), layers)
    if not reader.flag("use_sliding_window", False):
        return None
    first = 0
    if reader.fields.get("max_window_layers") != 0:
        first = reader.size("max_window_layers", QWEN_WINDOW_START)
    sliding = read_sliding_layers(reader, layers, lambda i: i >= first)
    return local_attention(read_window_size(reader), sliding, layers)


def _window_fields(stack: Stack, model_type: str) -> dict[str, Any]:
    if stack.local is None:
        return {}
    fields: dict[str, Any] = {"sliding_window": stack.local.before + 1}
    if model_type in QWEN:
        fields["use_sliding_window"] = True
        fields["layer_types"] = layer_types(stack)
    return fields
