"""Llama (Touvron et al. 2023), and what is written the same way: Mistral, Qwen, SmolLM."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, feed_forward, rotary
from qkv.checkpoints.families import (
    decoder_fields,
    expect_whole_heads,
    grouped,
    head_width,
    layer_types,
    sliding_layers,
    tied_head,
    window,
    window_size,
)
from qkv.checkpoints.format import Given, Layout, expect_decoder, expect_heads, told_dropout
from qkv.checkpoints.tensor_names import Table
from qkv.model import (
    DecoderOnly,
    Embedding,
    LocalAttention,
    MultiHead,
    NextToken,
    PreNorm,
    RMSNorm,
    Stack,
)
from qkv.model.build import ModelConfig

QWEN = ("qwen2", "qwen3")
TABLE: Table = {
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


class Llama(Layout):
    kinds = ("llama", "mistral", "qwen2", "qwen3")
    title = "Llama, Mistral, Qwen2, Qwen3, SmolLM"
    families = (
        "Llama",
        "Mistral",
        "Qwen2",
        "Qwen3",
    )
    prefix = "model."
    head = ("lm_head.",)
    leftovers = (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    architectures = ("ForCausalLM", "Model")
    classes: Mapping[str, str] = {
        "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3",
    }  # fmt: skip

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        layers = given.layers("num_hidden_layers")
        heads = given.size("num_attention_heads")
        kind = given.word("model_type")
        bias = kind in ("llama", "qwen3") and given.flag("attention_bias", False)
        norm = RMSNorm(eps=given.positive("rms_norm_eps", 1e-6))
        stack = Stack(
            layers=layers,
            width=given.size("hidden_size"),
            attention=MultiHead(
                heads=heads,
                kv_heads=grouped(given, heads),
                head_width=head_width(given, heads, 128 if kind == "qwen3" else None),
                bias=bias or kind == "qwen2",
                output_bias=bias,
                qk_norm=norm if kind == "qwen3" else None,
            ),
            feed_forward=feed_forward(
                given,
                "hidden_act",
                given.size("intermediate_size"),
                bias=kind == "llama" and given.flag("mlp_bias", False),
                gated=True,
                absent="silu",
            ),
            position=expect_whole_heads(rotary(given), given),
            norm=norm,
            norm_placement=PreNorm(),
            local=_window(given, kind, layers),
        )
        return DecoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=given.size("vocab_size")),
            decoder=stack,
            output=NextToken(tied=given.flag("tie_word_embeddings", False)),
        )

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_decoder(config)
        stack = config.decoder
        kind = _kind(stack)
        return {
            "model_type": kind,
            "architectures": [f"{self.classes[kind]}ForCausalLM"],
            **decoder_fields(config),
            "attention_bias": expect_heads(stack).output_bias,
            "mlp_bias": stack.feed_forward.bias,
            "hidden_act": activation_name(stack.feed_forward, gated=True),
            **_window_fields(stack, kind),
        }

    def table(self, config: ModelConfig) -> Table:
        return TABLE

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        return tied_head(config, "embed_tokens.weight")

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "attention_dropout", 0.0)


def _kind(stack: Stack) -> str:
    """The model_type that has these options."""
    heads = expect_heads(stack)
    if heads.qk_norm is not None:
        return "qwen3"
    if heads.bias and not heads.output_bias:
        return "qwen2"
    if stack.local is None:
        return "llama"
    return "mistral"


def _window(given: Given, kind: str, layers: int) -> LocalAttention | None:
    """Llama has no window, Mistral one on every layer, Qwen on some if it says so."""
    if kind == "llama" or (kind in QWEN and not given.flag("use_sliding_window", False)):
        return None
    if kind == "mistral":
        return window(window_size(given), range(layers), layers)
    if given.fields.get("max_window_layers") == 0:
        first = 0
    else:
        first = given.size("max_window_layers", 28)
    return window(window_size(given), sliding_layers(given, layers, lambda i: i >= first), layers)


def _window_fields(stack: Stack, kind: str) -> dict[str, Any]:
    if stack.local is None:
        return {}
    size = {"sliding_window": stack.local.before + 1}
    if kind not in QWEN:
        return size
    return {**size, "use_sliding_window": True, "layer_types": layer_types(stack)}
