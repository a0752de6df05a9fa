"""GPT-2 (Radford et al. 2019): matrices stored inputs first, q, k and v in one."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, feed_forward
from qkv.checkpoints.families import is_tied, tied_head
from qkv.checkpoints.format import Given, Layout, expect_decoder, told_dropout
from qkv.checkpoints.tensor_names import Joined, Table, Turned
from qkv.model import (
    DecoderOnly,
    Embedding,
    LayerNorm,
    Learned,
    MultiHead,
    NextToken,
    PreNorm,
    Stack,
)
from qkv.model.build import ModelConfig

TABLE: Table = {
    "embedding.weight": "wte.weight",
    "decoder.position.weight": "wpe.weight",
    "decoder.{i}.attention_in": "h.{i}.ln_1",
    (
        "decoder.{i}.attention.query",
        "decoder.{i}.attention.key",
        "decoder.{i}.attention.value",
    ): Joined("h.{i}.attn.c_attn", turned=True),
    "decoder.{i}.attention.output": Turned("h.{i}.attn.c_proj"),
    "decoder.{i}.feed_forward_in": "h.{i}.ln_2",
    "decoder.{i}.feed_forward.up": Turned("h.{i}.mlp.c_fc"),
    "decoder.{i}.feed_forward.down": Turned("h.{i}.mlp.c_proj"),
    "decoder.norm_out": "ln_f",
    "output.weight": "lm_head.weight",
}
ABSENT_DROPOUT = 0.1


class Gpt2(Layout):
    kinds = ("gpt2",)
    title = "GPT-2, DistilGPT-2"
    families = ("GPT2",)
    prefix = "transformer."
    head = ("lm_head.",)
    leftovers = (r"h\.\d+\.attn\.(masked_)?bias",)  # causal masks
    architectures = ("LMHeadModel", "Model")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        each = "scales each layer's scores differently, which cannot be carried"
        given.must_be("scale_attn_by_inverse_layer_idx", [False], each)
        given.must_be("add_cross_attention", [False], "needs an encoder; it cannot be carried")
        width = given.size("n_embd")
        stack = Stack(
            layers=given.layers("n_layer"),
            width=width,
            attention=MultiHead(
                heads=given.size("n_head"),
                scale=None if given.flag("scale_attn_weights", True) else 1.0,
            ),
            feed_forward=feed_forward(
                given,
                "activation_function",
                given.size("n_inner", 4 * width),
                bias=True,
                absent="gelu_new",
            ),
            position=Learned(),
            norm=LayerNorm(eps=given.positive("layer_norm_epsilon", 1e-5)),
            norm_placement=PreNorm(),
            dropout=given.share("resid_pdrop", ABSENT_DROPOUT),
        )
        return DecoderOnly(
            length=given.size("n_positions"),
            embedding=Embedding(vocabulary=given.size("vocab_size")),
            decoder=stack,
            output=NextToken(tied=given.flag("tie_word_embeddings", True)),
        )

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_decoder(config)
        stack = config.decoder
        return {
            "model_type": "gpt2",
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": config.embedding.vocabulary,
            "n_positions": config.length,
            "n_embd": stack.width,
            "n_layer": stack.layers,
            "n_head": stack.attention.heads,
            "n_inner": stack.feed_forward.width,
            "activation_function": activation_name(stack.feed_forward),
            "layer_norm_epsilon": stack.norm.eps,
            "scale_attn_weights": stack.attention.scale is None,
            "resid_pdrop": stack.dropout,
            "embd_pdrop": stack.dropout,
            "attn_pdrop": 0.0,
            "tie_word_embeddings": is_tied(config),
        }

    def table(self, config: ModelConfig) -> Table:
        return TABLE

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        return tied_head(config, "wte.weight")

    def notes(self, given: Given) -> list[str]:
        first = given.share("embd_pdrop", ABSENT_DROPOUT)
        usual = given.share("resid_pdrop", ABSENT_DROPOUT)
        told = told_dropout(given, "attn_pdrop", ABSENT_DROPOUT)
        if first == usual:
            return told
        return [*told, f"dropout of embeddings ({first:g}): training would use {usual:g} as after"]
