"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023).

Attention and feed-forward run in parallel on the same input, and RoPE rotates a part of each head.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import (
    DEFAULT_BASE,
    activation_name,
    read_feed_forward,
    read_rope,
    rope_fields,
)
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import is_tied
from qkv.checkpoints.format import (
    CheckpointFormat,
    attention_dropout_note,
    require_decoder,
    require_multi_head,
    require_rope,
)
from qkv.checkpoints.tensor_names import SplitRows, TensorMap
from qkv.model import (
    DecoderOnly,
    Embedding,
    LayerNorm,
    ModelConfig,
    MultiHead,
    NextToken,
    ParallelNorm,
    PreNorm,
    Rope,
    Stack,
)

TENSOR_MAP: TensorMap = {
    "embedding.weight": "embed_in.weight",
    "decoder.{i}.attention_in": "layers.{i}.input_layernorm",
    "decoder.{i}.attention.output": "layers.{i}.attention.dense",
    "decoder.{i}.feed_forward_in": "layers.{i}.post_attention_layernorm",
    "decoder.{i}.feed_forward.up": "layers.{i}.mlp.dense_h_to_4h",
    "decoder.{i}.feed_forward.down": "layers.{i}.mlp.dense_4h_to_h",
    "decoder.norm_out": "final_layer_norm",
    "output.weight": "embed_out.weight",
}
QKV = (
    "decoder.{i}.attention.query",
    "decoder.{i}.attention.key",
    "decoder.{i}.attention.value",
)
DEFAULT_FRACTION = 0.25


class GptNeoX(CheckpointFormat):
    model_types = ("gpt_neox",)
    title = "GPT-NeoX, Pythia"
    class_prefixes = ("GPTNeoX",)
    prefix = "gpt_neox."
    head_prefixes = ("embed_out.", "lm_head.")
    # Causal masks and RoPE frequencies of old files.
    obsolete_tensors = (r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",)
    class_suffixes = ("ForCausalLM", "Model")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        bias = reader.flag("attention_bias", True)
        parallel = reader.flag("use_parallel_residual", True)
        stack = Stack(
            layers=reader.layers("num_hidden_layers"),
            width=reader.size("hidden_size"),
            attention=MultiHead(
                heads=reader.size("num_attention_heads"), bias=bias, output_bias=bias
            ),
            feed_forward=read_feed_forward(
                reader, "hidden_act", reader.size("intermediate_size"), bias=True
            ),
            position=_read_rope(reader),
            norm=LayerNorm(eps=reader.positive("layer_norm_eps", 1e-5)),
            norm_placement=ParallelNorm() if parallel else PreNorm(),
            dropout=reader.fraction("hidden_dropout", 0.0),
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
        position = require_rope(stack)
        rope = rope_fields(position)
        rope["partial_rotary_factor"] = position.fraction  # also if it is 1: the default is 0.25
        return {
            "model_type": "gpt_neox",
            "architectures": ["GPTNeoXForCausalLM"],
            "vocab_size": config.embedding.vocabulary,
            "hidden_size": stack.width,
            "num_hidden_layers": stack.layers,
            "num_attention_heads": stack.attention.heads,
            "intermediate_size": stack.feed_forward.width,
            "max_position_embeddings": config.length,
            "hidden_act": activation_name(stack.feed_forward),
            "layer_norm_eps": stack.norm.eps,
            "attention_bias": require_multi_head(stack).bias,
            "use_parallel_residual": isinstance(stack.norm_placement, ParallelNorm),
            "rope_parameters": rope,
            "rotary_emb_base": position.base,  # again, for programs that only know the old names
            "rotary_pct": position.fraction,
            "hidden_dropout": stack.dropout,
            "attention_dropout": 0.0,
            "tie_word_embeddings": is_tied(config),
        }

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        heads = require_decoder(config).decoder.attention.heads
        fused = SplitRows("layers.{i}.attention.query_key_value", heads=heads)
        return TENSOR_MAP | {QKV: fused}

    # The LM head occurs in files as embed_out and as lm_head.
    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        if is_tied(config):
            return dict.fromkeys(("embed_out.weight", "lm_head.weight"), "embed_in.weight")
        return {"lm_head.weight": "embed_out.weight"}

    def notes(self, reader: ConfigReader) -> list[str]:
        return attention_dropout_note(reader, "attention_dropout", 0.0)


def _read_rope(reader: ConfigReader) -> Rope:
    """RoPE under this format's own names for base and fraction, or in `rope_parameters`."""
    base = reader.positive("rotary_emb_base", reader.positive("rope_theta", DEFAULT_BASE))
    fraction = reader.positive("rotary_pct", DEFAULT_FRACTION)
    fields = {**reader.fields, "rope_theta": base, "rotary_pct": fraction}
    return read_rope(ConfigReader(fields, reader.location))
