"""GPT-NeoX (Black et al. 2022) and Pythia: parts side by side, and a part of each head turned."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import (
    ABSENT_BASE,
    activation_name,
    feed_forward,
    rotary,
    rotary_fields,
)
from qkv.checkpoints.families import is_tied
from qkv.checkpoints.format import (
    Given,
    Layout,
    expect_decoder,
    expect_heads,
    expect_rotary,
    told_dropout,
)
from qkv.checkpoints.tensor_names import Joined, Table
from qkv.model import (
    DecoderOnly,
    Embedding,
    LayerNorm,
    MultiHead,
    NextToken,
    ParallelNorm,
    PreNorm,
    Rope,
    Stack,
)
from qkv.model.build import ModelConfig

TABLE: Table = {
    "embedding.weight": "embed_in.weight",
    "decoder.{i}.attention_in": "layers.{i}.input_layernorm",
    "decoder.{i}.attention.output": "layers.{i}.attention.dense",
    "decoder.{i}.feed_forward_in": "layers.{i}.post_attention_layernorm",
    "decoder.{i}.feed_forward.up": "layers.{i}.mlp.dense_h_to_4h",
    "decoder.{i}.feed_forward.down": "layers.{i}.mlp.dense_4h_to_h",
    "decoder.norm_out": "final_layer_norm",
    "output.weight": "embed_out.weight",
}
HEADS = (
    "decoder.{i}.attention.query",
    "decoder.{i}.attention.key",
    "decoder.{i}.attention.value",
)
ABSENT_SHARE = 0.25


class GptNeoX(Layout):
    kinds = ("gpt_neox",)
    title = "GPT-NeoX, Pythia"
    families = ("GPTNeoX",)
    prefix = "gpt_neox."
    head = ("embed_out.", "lm_head.")
    leftovers = (r"layers\.\d+\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",)
    architectures = ("ForCausalLM", "Model")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        bias = given.flag("attention_bias", True)
        stack = Stack(
            layers=given.layers("num_hidden_layers"),
            width=given.size("hidden_size"),
            attention=MultiHead(
                heads=given.size("num_attention_heads"), bias=bias, output_bias=bias
            ),
            feed_forward=feed_forward(
                given, "hidden_act", given.size("intermediate_size"), bias=True
            ),
            position=_rotary(given),
            norm=LayerNorm(eps=given.positive("layer_norm_eps", 1e-5)),
            norm_placement=ParallelNorm()
            if given.flag("use_parallel_residual", True)
            else PreNorm(),
            dropout=given.share("hidden_dropout", 0.0),
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
        position = expect_rotary(config.decoder)
        share = {
            "partial_rotary_factor": position.fraction
        }  # said even if whole: absent is a quarter
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
            "attention_bias": expect_heads(stack).bias,
            "use_parallel_residual": isinstance(stack.norm_placement, ParallelNorm),
            "rope_parameters": rotary_fields(position) | share,
            "rotary_emb_base": position.base,  # once more, for programs that know only these
            "rotary_pct": position.fraction,
            "hidden_dropout": stack.dropout,
            "attention_dropout": 0.0,
            "tie_word_embeddings": is_tied(config),
        }

    def table(self, config: ModelConfig) -> Table:
        heads = expect_decoder(config).decoder.attention.heads
        joined = Joined("layers.{i}.attention.query_key_value", heads=heads)
        return TABLE | {HEADS: joined}

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        if is_tied(config):
            return dict.fromkeys(("embed_out.weight", "lm_head.weight"), "embed_in.weight")
        return {"lm_head.weight": "embed_out.weight"}

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "attention_dropout", 0.0)


def _rotary(given: Given) -> Rope:
    """Positions under this layout's own names for base and share, or in `rope_parameters`."""
    base = given.positive("rotary_emb_base", given.positive("rope_theta", ABSENT_BASE))
    share = given.positive("rotary_pct", ABSENT_SHARE)
    return rotary(Given({**given.fields, "rope_theta": base, "rotary_pct": share}, given.place))
