"""T5Gemma (Zhang et al. 2025): an encoder and a decoder with the layers of Gemma 2.

Each side has a config of its own inside config.json, and an embedding of its own.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import (
    activation_name,
    read_feed_forward,
    read_rope,
    rope_fields,
)
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    SLIDING,
    SOURCE_EMBEDDING,
    TARGET_EMBEDDING,
    layer_types,
    read_head_width,
    read_kv_heads,
    require_full_rotary,
)
from qkv.checkpoints.format import (
    CheckpointFormat,
    attention_dropout_note,
    require_encoder_decoder,
    require_multi_head,
    require_rope,
)
from qkv.checkpoints.tensor_names import TensorMap
from qkv.model import (
    Embedding,
    EncoderDecoder,
    ModelConfig,
    MultiHead,
    NextToken,
    RMSNorm,
    SandwichNorm,
    Stack,
)

SIDES = ("encoder", "decoder")
LM_HEAD = "lm_head.out_proj.weight"
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
FEED_FORWARD = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
# Our name of each sublayer; its module, the matrices in it, and the name in its two norms.
SUBLAYERS = {
    "attention": ("self_attn", ATTENTION, "self_attn"),
    "cross": ("cross_attn", ATTENTION, "cross_attn"),
    "feed_forward": ("mlp", FEED_FORWARD, "feedforward"),
}
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
DEFAULT_HEAD_WIDTH = 256


class T5Gemma(CheckpointFormat):
    model_types = ("t5gemma",)
    title = "T5Gemma"
    class_prefixes = ("T5Gemma",)
    prefix = "model."
    head_prefixes = ("lm_head.",)
    class_suffixes = ("ForConditionalGeneration", "Model")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        sides = {side: reader.section(side) for side in SIDES}
        dropout = reader.fraction("dropout_rate", 0.0)
        decoder = sides["decoder"]
        cap = None
        if decoder.has("final_logit_softcapping"):
            cap = decoder.positive("final_logit_softcapping")
        return EncoderDecoder(
            length=decoder.size("max_position_embeddings", 8192),
            embedding=Embedding(vocabulary=decoder.size("vocab_size"), scaled=True),
            source=Embedding(vocabulary=sides["encoder"].size("vocab_size"), scaled=True),
            encoder=_read_stack(sides["encoder"], dropout),
            decoder=_read_stack(decoder, dropout),
            output=NextToken(tied=reader.flag("tie_word_embeddings", True), cap=cap),
        )

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder_decoder(config)
        source = config.source or config.embedding
        return {
            "model_type": "t5gemma",
            "architectures": ["T5GemmaForConditionalGeneration"],
            "is_encoder_decoder": True,
            "vocab_size": config.embedding.vocabulary,
            "encoder": _side_fields(config, config.encoder, source),
            "decoder": _side_fields(config, config.decoder, config.embedding),
            "dropout_rate": config.decoder.dropout,
            "tie_word_embeddings": config.output.tied,
        }

    def with_token_ids(
        self, fields: Mapping[str, Any], token_ids: Mapping[str, Any]
    ) -> dict[str, Any]:
        result = super().with_token_ids(fields, token_ids)
        own = {name: token_ids[name] for name in TOKEN_IDS if name in token_ids}
        for side in SIDES:
            result[side] = {**fields[side], **own}
        return result

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        tensor_map: TensorMap = {
            "embedding.weight": TARGET_EMBEDDING,
            "source.weight": SOURCE_EMBEDDING,
            "output.weight": LM_HEAD,
        }
        for side in SIDES:
            tensor_map[f"{side}.norm_out"] = f"{side}.norm"
            for part, (module, matrices, norm) in SUBLAYERS.items():
                layer = f"{side}.layers.{{i}}"
                tensor_map[f"{side}.{{i}}.{part}_in"] = f"{layer}.pre_{norm}_layernorm"
                tensor_map[f"{side}.{{i}}.{part}_join.norm"] = f"{layer}.post_{norm}_layernorm"
                for ours, public in matrices.items():
                    tensor_map[f"{side}.{{i}}.{part}.{ours}"] = f"{layer}.{module}.{public}"
        return tensor_map

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        if require_encoder_decoder(config).output.tied:
            return {LM_HEAD: TARGET_EMBEDDING}
        return {}

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_dropout", 0.0)


def _read_stack(reader: ConfigReader, dropout: float) -> Stack:
    heads = reader.size("num_attention_heads")
    bias = reader.flag("attention_bias", False)
    width = reader.size("hidden_size")
    scalar = reader.positive("query_pre_attn_scalar", DEFAULT_HEAD_WIDTH)
    scale = None
    if scalar != reader.size("head_dim", DEFAULT_HEAD_WIDTH):
        scale = scalar**-0.5
    cap = None
    if reader.has("attn_logit_softcapping"):
        cap = reader.positive("attn_logit_softcapping")
    layers = reader.layers("num_hidden_layers")
    types = reader.items("layer_types")
    if len(types) != layers or SLIDING in types:
        raise reader.error("layer_types", list(types), "full_attention for each layer")
    return Stack(
        layers=layers,
        width=width,
        attention=MultiHead(
            heads=heads,
            kv_heads=read_kv_heads(reader, heads),
            head_width=read_head_width(reader, heads, DEFAULT_HEAD_WIDTH),
            bias=bias,
            output_bias=bias,
            scale=scale,
            cap=cap,
        ),
        feed_forward=read_feed_forward(
            reader,
            "hidden_activation",
            reader.size("intermediate_size"),
            bias=False,
            gated=True,
            default="gelu_pytorch_tanh",
        ),
        position=require_full_rotary(read_rope(reader), reader),
        norm=RMSNorm(eps=reader.positive("rms_norm_eps", 1e-6), unit_offset=True),
        norm_placement=SandwichNorm(),
        dropout=dropout,
    )


def _side_fields(config: EncoderDecoder, stack: Stack, embedding: Embedding) -> dict[str, Any]:
    attention = require_multi_head(stack)
    head_width = attention.key_width(stack.width)
    scalar = head_width
    if attention.scale:
        scalar = round(attention.scale**-2)
    return {
        "model_type": "t5_gemma_module",
        "vocab_size": embedding.vocabulary,
        "hidden_size": stack.width,
        "intermediate_size": stack.feed_forward.width,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.num_kv_heads,
        "head_dim": head_width,
        "hidden_activation": activation_name(stack.feed_forward, gated=True),
        "max_position_embeddings": config.length,
        "rms_norm_eps": stack.norm.eps,
        "rope_parameters": rope_fields(require_rope(stack)),
        "attention_bias": attention.bias,
        "query_pre_attn_scalar": scalar,
        "layer_types": layer_types(stack),
        "attn_logit_softcapping": attention.cap,
        "final_logit_softcapping": config.output.cap,
        "tie_word_embeddings": config.output.tied,
        # null, because the defaults of transformers are tokens of another vocabulary
        **dict.fromkeys(TOKEN_IDS),
    }
