"""Gemma 1, 2 and 3 (Gemma Team 2024, 2025), text only.

Embeddings are multiplied by √width, and RMSNorm gains are stored as differences from 1. Gemma 2
adds norms after each part, soft caps on logits and sliding windows; Gemma 3 replaces the cap on
attention scores by a norm on queries and keys, and gives local layers a RoPE base of their own.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, read_feed_forward, read_rope, rope_fields
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    FULL,
    SLIDING,
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
from qkv.checkpoints.llama import TENSOR_MAP as LLAMA_MAP
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
    Rope,
    SandwichNorm,
    Stack,
)

SANDWICH_NORMS: TensorMap = {
    "decoder.{i}.attention_join.norm": "layers.{i}.post_attention_layernorm",
    "decoder.{i}.feed_forward_in": "layers.{i}.pre_feedforward_layernorm",
    "decoder.{i}.feed_forward_join.norm": "layers.{i}.post_feedforward_layernorm",
}
CLASSES = {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3"}
ACTIVATION = "gelu_pytorch_tanh"
DEFAULT_HEAD_WIDTH = 256
DEFAULT_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}  # of Gemma 2
GEMMA2_PERIOD = 2  # every second layer is global
GEMMA3_PERIOD = 6
GEMMA3_BASE = 1_000_000.0
GEMMA3_LOCAL_BASE = 10_000.0


class Gemma(CheckpointFormat):
    model_types = ("gemma", "gemma2", "gemma3_text")
    title = "Gemma 1, 2 and 3 (text)"
    class_prefixes = ("Gemma", "Gemma2", "Gemma3", "Gemma3Text")
    prefix = "model."
    head_prefixes = ("lm_head.",)
    obsolete_tensors = (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    class_suffixes = ("ForCausalLM", "Model")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        reader.require(
            "use_bidirectional_attention",
            [False],
            "lets a token attend to later ones; decoders here are causal",
        )
        model_type = reader.string("model_type")
        layers = reader.layers("num_hidden_layers")
        norm = RMSNorm(eps=reader.positive("rms_norm_eps", 1e-6), unit_offset=True)
        base = GEMMA3_BASE if model_type == "gemma3_text" else None
        position = require_full_rotary(read_rope(reader, FULL, base), reader)
        placement: PreNorm | SandwichNorm = PreNorm()
        local = None
        cap = None
        if model_type != "gemma":
            placement = SandwichNorm()
            local = _read_window(reader, model_type, layers, position)
            cap = _read_cap(reader, "final_logit_softcapping", model_type)
        stack = Stack(
            layers=layers,
            width=reader.size("hidden_size"),
            attention=_read_attention(reader, model_type, norm),
            feed_forward=_read_feed_forward(reader, model_type),
            position=position,
            norm=norm,
            norm_placement=placement,
            local=local,
        )
        return DecoderOnly(
            length=reader.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=reader.size("vocab_size"), scaled=True),
            decoder=stack,
            output=NextToken(tied=reader.flag("tie_word_embeddings", True), cap=cap),
        )

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_decoder(config)
        model_type = _model_type(config.decoder)
        activation = activation_name(config.decoder.feed_forward, gated=True)
        if activation == "gelu_new":  # the same function under another name
            activation = ACTIVATION
        fields = {
            "model_type": model_type,
            "architectures": [f"{CLASSES[model_type]}ForCausalLM"],
            **decoder_fields(config),
            "attention_bias": require_multi_head(config.decoder).bias,
            _activation_field(model_type): activation,
        }
        if model_type != "gemma":
            fields |= _gemma2_fields(config, model_type)
        return fields

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        if isinstance(require_decoder(config).decoder.norm_placement, SandwichNorm):
            return LLAMA_MAP | SANDWICH_NORMS
        return LLAMA_MAP

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        return lm_head_alias(config, "embed_tokens.weight")

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_dropout", 0.0)


def _model_type(stack: Stack) -> str:
    """The model_type that has these options."""
    if not isinstance(stack.norm_placement, SandwichNorm):
        return "gemma"
    if require_multi_head(stack).qk_norm is None:
        return "gemma2"
    return "gemma3_text"


def _activation_field(model_type: str) -> str:
    return "hidden_act" if model_type == "gemma" else "hidden_activation"


def _read_attention(reader: ConfigReader, model_type: str, norm: RMSNorm) -> MultiHead:
    heads = reader.size("num_attention_heads")
    bias = reader.flag("attention_bias", False)
    scale = None
    cap = None
    qk_norm = None
    # Scores are divided by √query_pre_attn_scalar, which need not be the width of a head.
    scalar = reader.positive("query_pre_attn_scalar", DEFAULT_HEAD_WIDTH)
    if model_type != "gemma" and scalar != reader.size("head_dim", DEFAULT_HEAD_WIDTH):
        scale = scalar**-0.5
    if model_type == "gemma2":
        cap = _read_cap(reader, "attn_logit_softcapping", model_type)
    if model_type == "gemma3_text":
        reader.require("attn_logit_softcapping", [], "gemma3_text does not have")
        qk_norm = norm
    return MultiHead(
        heads=heads,
        kv_heads=read_kv_heads(reader, heads),
        head_width=read_head_width(reader, heads, DEFAULT_HEAD_WIDTH),
        bias=bias,
        output_bias=bias,
        qk_norm=qk_norm,
        scale=scale,
        cap=cap,
    )


def _read_cap(reader: ConfigReader, name: str, model_type: str) -> float | None:
    """A soft cap on logits: null means no cap, but an absent field has a default in Gemma 2."""
    default = DEFAULT_CAPS[name] if model_type == "gemma2" else None
    if reader.fields.get(name, default) is None:
        return None
    return reader.positive(name, default)


def _read_feed_forward(reader: ConfigReader, model_type: str) -> Any:
    """GEGLU; the configs of Gemma 1 name "gelu" by mistake and mean its tanh approximation."""
    name = _activation_field(model_type)
    if model_type == "gemma" and reader.fields.get(name) == "gelu":
        reader = ConfigReader({**reader.fields, name: ACTIVATION}, reader.location)
    width = reader.size("intermediate_size")
    return read_feed_forward(reader, name, width, bias=False, gated=True, default=ACTIVATION)


def _read_window(
    reader: ConfigReader, model_type: str, layers: int, position: Rope
) -> LocalAttention | None:
    """Windows on all layers but every second (Gemma 2) or sixth (Gemma 3), or on `layer_types`."""
    local_position = None
    if model_type == "gemma2":
        period = GEMMA2_PERIOD
    else:
        period = reader.size("sliding_window_pattern", GEMMA3_PERIOD)
        local_position = _read_local_rope(reader)
        if local_position == position:
            local_position = None
    sliding = read_sliding_layers(reader, layers, lambda i: (i + 1) % period > 0)
    size = read_window_size(reader)
    if sliding and size is None:
        raise reader.error("sliding_window", None, f"a window size for the layers {sliding}")
    return local_attention(size, sliding, layers, local_position)


def _read_local_rope(reader: ConfigReader) -> Rope:
    """RoPE of the layers with a window; `rope_scaling` applies to the global layers only."""
    parameters = reader.section("rope_parameters").section(SLIDING)
    fields = {
        **reader.fields,
        "rope_theta": reader.positive("rope_local_base_freq", GEMMA3_LOCAL_BASE),
        "rope_parameters": parameters.fields or None,
        "rope_scaling": None,
    }
    return require_full_rotary(read_rope(ConfigReader(fields, reader.location)), reader)


def _gemma2_fields(config: DecoderOnly, model_type: str) -> dict[str, Any]:
    """The fields that Gemma 2 and 3 have and Gemma 1 does not."""
    stack = config.decoder
    attention = require_multi_head(stack)
    scalar = attention.key_width(stack.width)
    if attention.scale:
        scalar = round(attention.scale**-2)
    output = config.output
    fields: dict[str, Any] = {
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": attention.cap if model_type == "gemma2" else None,
        "final_logit_softcapping": output.cap if isinstance(output, NextToken) else None,
        "layer_types": layer_types(stack),
    }
    local_position = None
    if stack.local is not None:
        fields["sliding_window"] = stack.local.before + 1
        local_position = stack.local.position
    if model_type == "gemma3_text" and isinstance(stack.position, Rope):
        fields["rope_parameters"] = {
            FULL: rope_fields(stack.position),
            SLIDING: rope_fields(local_position or stack.position),
        }
    return fields
