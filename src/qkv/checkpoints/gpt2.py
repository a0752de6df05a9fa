"""GPT-2 (Radford et al. 2019).

Its "Conv1D" layers store matrices as (inputs, outputs), with q, k and v in one.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, read_feed_forward
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import is_tied, lm_head_alias
from qkv.checkpoints.format import CheckpointFormat, attention_dropout_note, require_decoder
from qkv.checkpoints.tensor_names import SplitRows, TensorMap, Transpose
from qkv.model import (
    DecoderOnly,
    Embedding,
    LayerNorm,
    Learned,
    ModelConfig,
    MultiHead,
    NextToken,
    PreNorm,
    Stack,
)

# c_attn holds q, k and v next to each other in its outputs.
TENSOR_MAP: TensorMap = {
    "embedding.weight": "wte.weight",
    "decoder.position.weight": "wpe.weight",
    "decoder.{i}.attention_in": "h.{i}.ln_1",
    (
        "decoder.{i}.attention.query",
        "decoder.{i}.attention.key",
        "decoder.{i}.attention.value",
    ): SplitRows("h.{i}.attn.c_attn", transposed=True),
    "decoder.{i}.attention.output": Transpose("h.{i}.attn.c_proj"),
    "decoder.{i}.feed_forward_in": "h.{i}.ln_2",
    "decoder.{i}.feed_forward.up": Transpose("h.{i}.mlp.c_fc"),
    "decoder.{i}.feed_forward.down": Transpose("h.{i}.mlp.c_proj"),
    "decoder.norm_out": "ln_f",
    "output.weight": "lm_head.weight",
}
DEFAULT_DROPOUT = 0.1


class Gpt2(CheckpointFormat):
    model_types = ("gpt2",)
    title = "GPT-2, DistilGPT-2"
    class_prefixes = ("GPT2",)
    prefix = "transformer."
    head_prefixes = ("lm_head.",)
    obsolete_tensors = (r"h\.\d+\.attn\.(masked_)?bias",)  # causal masks of old files
    class_suffixes = ("LMHeadModel", "Model")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        reader.require(
            "scale_attn_by_inverse_layer_idx",
            [False],
            "scales each layer's scores differently and is not supported",
        )
        reader.require("add_cross_attention", [False], "needs an encoder and is not supported")
        width = reader.size("n_embd")
        stack = Stack(
            layers=reader.layers("n_layer"),
            width=width,
            attention=MultiHead(
                heads=reader.size("n_head"),
                scale=None if reader.flag("scale_attn_weights", True) else 1.0,
            ),
            feed_forward=read_feed_forward(
                reader,
                "activation_function",
                reader.size("n_inner", 4 * width),
                bias=True,
                default="gelu_new",
            ),
            position=Learned(),
            norm=LayerNorm(eps=reader.positive("layer_norm_epsilon", 1e-5)),
            norm_placement=PreNorm(),
            dropout=reader.fraction("resid_pdrop", DEFAULT_DROPOUT),
        )
        return DecoderOnly(
            length=reader.size("n_positions"),
            embedding=Embedding(vocabulary=reader.size("vocab_size")),
            decoder=stack,
            output=NextToken(tied=reader.flag("tie_word_embeddings", True)),
        )

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_decoder(config)
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

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        return TENSOR_MAP

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        return lm_head_alias(config, "wte.weight")

    def notes(self, reader: ConfigReader) -> list[str]:
        notes = attention_dropout_note(reader, "attn_pdrop", DEFAULT_DROPOUT)
        embeddings = reader.fraction("embd_pdrop", DEFAULT_DROPOUT)
        residual = reader.fraction("resid_pdrop", DEFAULT_DROPOUT)
        if embeddings != residual:
            notes.append(
                f"dropout of embeddings ({embeddings:g}): training uses {residual:g} everywhere"
            )
        return notes
