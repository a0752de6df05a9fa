"""Gemma 1, 2 and 3 (Gemma Team 2024, 2025), text only: embeddings times √D, gains around 1."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, feed_forward, rotary, rotary_fields
from qkv.checkpoints.families import (
    FULL,
    SLIDING,
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
from qkv.checkpoints.llama import TABLE as LLAMA
from qkv.checkpoints.tensor_names import Table
from qkv.model import (
    DecoderOnly,
    Embedding,
    LocalAttention,
    MultiHead,
    NextToken,
    PreNorm,
    RMSNorm,
    Rope,
    SandwichNorm,
    Stack,
)
from qkv.model.build import ModelConfig

SANDWICH: Table = {
    "decoder.{i}.attention_join.norm": "layers.{i}.post_attention_layernorm",
    "decoder.{i}.feed_forward_in": "layers.{i}.pre_feedforward_layernorm",
    "decoder.{i}.feed_forward_join.norm": "layers.{i}.post_feedforward_layernorm",
}
CLASSES = {"gemma": "Gemma", "gemma2": "Gemma2", "gemma3_text": "Gemma3"}
BENT = "gelu_pytorch_tanh"
ABSENT_WIDTH = 256  # of a head; also what its scores are divided by the root of
ABSENT_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}  # of Gemma 2
# of Gemma 3
GLOBAL_BASE = 1_000_000.0
LOCAL_BASE = 10_000.0


class Gemma(Layout):
    kinds = ("gemma", "gemma2", "gemma3_text")
    title = "Gemma 1, 2 and 3 (text)"
    families = (
        "Gemma",
        "Gemma2",
        "Gemma3",
        "Gemma3Text",
    )
    prefix = "model."
    head = ("lm_head.",)
    leftovers = (r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",)
    architectures = ("ForCausalLM", "Model")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        both = "lets a position see what follows it, which a decoder of ours cannot"
        given.must_be("use_bidirectional_attention", [False], both)
        kind = given.word("model_type")
        layers = given.layers("num_hidden_layers")
        norm = RMSNorm(eps=given.positive("rms_norm_eps", 1e-6), unit_offset=True)
        position = rotary(given, FULL, GLOBAL_BASE if kind == "gemma3_text" else None)
        stack = Stack(
            layers=layers,
            width=given.size("hidden_size"),
            attention=_heads(given, kind, norm),
            feed_forward=_feed_forward(given, kind),
            position=expect_whole_heads(position, given),
            norm=norm,
            norm_placement=PreNorm() if kind == "gemma" else SandwichNorm(),
            local=None if kind == "gemma" else _window(given, kind, layers, position),
        )
        return DecoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=given.size("vocab_size"), scaled=True),
            decoder=stack,
            output=NextToken(
                tied=given.flag("tie_word_embeddings", True),
                cap=None if kind == "gemma" else _cap(given, "final_logit_softcapping", kind),
            ),
        )

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_decoder(config)
        kind = _kind(config.decoder)
        bent = activation_name(config.decoder.feed_forward, gated=True)
        bent = BENT if bent == "gelu_new" else bent  # the same under the usual name
        return {
            "model_type": kind,
            "architectures": [f"{CLASSES[kind]}ForCausalLM"],
            **decoder_fields(config),
            "attention_bias": expect_heads(config.decoder).bias,
            "hidden_act" if kind == "gemma" else "hidden_activation": bent,
            **({} if kind == "gemma" else _later_fields(config, kind)),
        }

    def table(self, config: ModelConfig) -> Table:
        residual = expect_decoder(config).decoder.norm_placement
        if isinstance(residual, SandwichNorm):
            return LLAMA | SANDWICH
        return LLAMA

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        return tied_head(config, "embed_tokens.weight")

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "attention_dropout", 0.0)


def _kind(stack: Stack) -> str:
    """The model_type that has these options."""
    if not isinstance(stack.norm_placement, SandwichNorm):
        return "gemma"
    if expect_heads(stack).qk_norm is None:
        return "gemma2"
    return "gemma3_text"


def _heads(given: Given, kind: str, norm: RMSNorm) -> MultiHead:
    heads = given.size("num_attention_heads")
    bias = given.flag("attention_bias", False)
    divided = given.positive("query_pre_attn_scalar", ABSENT_WIDTH)
    usual = kind == "gemma" or divided == given.size("head_dim", ABSENT_WIDTH)
    if kind == "gemma3_text":
        given.must_be("attn_logit_softcapping", [], "gemma3_text does not have")
    return MultiHead(
        heads=heads,
        kv_heads=grouped(given, heads),
        head_width=head_width(given, heads, ABSENT_WIDTH),
        bias=bias,
        output_bias=bias,
        qk_norm=norm if kind == "gemma3_text" else None,
        scale=None if usual else divided**-0.5,
        cap=_cap(given, "attn_logit_softcapping", kind) if kind == "gemma2" else None,
    )


def _cap(given: Given, name: str, kind: str) -> float | None:
    """Null is no cap, which is not what an absent field means in Gemma 2."""
    if kind == "gemma2":
        absent = ABSENT_CAPS[name]
    else:
        absent = None
    if given.fields.get(name, absent) is None:
        return None
    return given.positive(name, absent)


def _feed_forward(given: Given, kind: str) -> Any:
    """GEGLU; in the first configs "gelu" is a slip for its tanh approximation."""
    if kind == "gemma":
        name = "hidden_act"
    else:
        name = "hidden_activation"
    if kind == "gemma" and given.fields.get(name) == "gelu":
        given = Given({**given.fields, name: BENT}, given.place)
    width = given.size("intermediate_size")
    return feed_forward(given, name, width, bias=False, gated=True, absent=BENT)


def _window(given: Given, kind: str, layers: int, usual: Rope) -> LocalAttention | None:
    """Every second layer, or all but every sixth, unless the config says which."""
    if kind == "gemma2":
        period = 2
    else:
        period = given.size("sliding_window_pattern", 6)
    near = sliding_layers(given, layers, lambda i: (i + 1) % period > 0)
    size = window_size(given)
    if near and size is None:
        raise given.wrong("sliding_window", None, f"a number of positions for layers {near}")
    if kind == "gemma2":
        own = usual
    else:
        own = _local_rotary(given)
    return window(size, near, layers, None if own == usual else own)


def _local_rotary(given: Given) -> Rope:
    """Positions of layers with a window: `rope_scaling` is not for them."""
    said = given.inner("rope_parameters").inner(SLIDING)
    base = given.positive("rope_local_base_freq", LOCAL_BASE)
    alone = {"rope_theta": base, "rope_parameters": said.fields or None}
    position = rotary(Given({**given.fields, **alone, "rope_scaling": None}, given.place))
    return expect_whole_heads(position, given)


def _later_fields(config: DecoderOnly, kind: str) -> dict[str, Any]:
    """What Gemma 2 and 3 say and the first did not."""
    stack = config.decoder
    heads = expect_heads(config.decoder)
    local = stack.local
    scale = heads.scale
    scores = config.output
    if not scale:
        divided = heads.key_width(stack.width)
    else:
        divided = round(scale**-2)
    found: dict[str, Any] = {
        "query_pre_attn_scalar": divided,
        "attn_logit_softcapping": heads.cap if kind == "gemma2" else None,
        "final_logit_softcapping": scores.cap if isinstance(scores, NextToken) else None,
        "layer_types": layer_types(stack),
        **({} if local is None else {"sliding_window": local.before + 1}),
    }
    if kind == "gemma3_text" and isinstance(stack.position, Rope):
        own = None if local is None else local.position
        near = {SLIDING: rotary_fields(own or stack.position)}
        found["rope_parameters"] = {FULL: rotary_fields(stack.position)} | near
    return found
