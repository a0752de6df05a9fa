"""T5 (Raffel et al. 2020), its successors v1.1 and Flan-T5, and mT5."""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import activation_name, feed_forward
from qkv.checkpoints.families import ends, ends_again, tied_output
from qkv.checkpoints.format import Given, Layout, expect_translator, told_dropout
from qkv.checkpoints.tensor_names import Table
from qkv.errors import ConfigError
from qkv.model import (
    GEGLU,
    Embedding,
    EncoderDecoder,
    MultiHead,
    NextToken,
    PreNorm,
    RelativeBuckets,
    RMSNorm,
    Stack,
    SwiGLU,
)
from qkv.model.build import ModelConfig

PLACES = {  # of each part among a block's layers
    "encoder": {"attention": (0, "SelfAttention"), "feed_forward": (1, "DenseReluDense")},
    "decoder": {
        "attention": (0, "SelfAttention"),
        "cross": (1, "EncDecAttention"),
        "feed_forward": (2, "DenseReluDense"),
    },
}
ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}
PLAIN = {"up": "wi", "down": "wo"}
GATED = {"gate": "wi_0", "up": "wi_1", "down": "wo"}


class T5(Layout):
    kinds = ("t5", "mt5")
    title = "T5, Flan-T5, mT5"
    families = (
        "T5",
        "MT5",
    )
    head = ("lm_head.",)
    leftovers = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
    architectures = ("ForConditionalGeneration", "WithLMHeadModel", "Model")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        given.must_be("is_encoder_decoder", [True], "makes it one half, which cannot be carried")
        width = given.size("d_model")
        layers = given.layers("num_layers")
        return EncoderDecoder(
            length=given.size("n_positions", 512),  # no limit, only what it was trained on
            embedding=Embedding(vocabulary=given.size("vocab_size")),
            encoder=_stack(given, layers, both_ways=True),
            decoder=_stack(given, given.layers("num_decoder_layers", layers), both_ways=False),
            output=NextToken(
                tied=tied_output(given, tensors),
                multiplier=width**-0.5 if _scaled(given) else 1.0,
            ),
        )

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_translator(config)
        stack = config.encoder
        heads = config.encoder.attention
        position = config.encoder.position
        if not isinstance(position, RelativeBuckets):
            raise ConfigError(f"this layout has relative buckets, not {position.kind} positions")
        gated = _is_gated(stack)
        bend = activation_name(stack.feed_forward, gated)
        return {
            "model_type": self.kinds[0],
            "architectures": ["T5ForConditionalGeneration"],
            "is_encoder_decoder": True,
            "vocab_size": config.embedding.vocabulary,
            "n_positions": config.length,
            "d_model": stack.width,
            "d_kv": heads.key_width(stack.width),
            "d_ff": stack.feed_forward.width,
            "num_layers": stack.layers,
            "num_decoder_layers": config.decoder.layers,
            "num_heads": heads.heads,
            "relative_attention_num_buckets": position.buckets,
            "relative_attention_max_distance": position.max_distance,
            "layer_norm_epsilon": stack.norm.eps,
            "dropout_rate": stack.dropout,
            "feed_forward_proj": f"gated-{bend.removesuffix('_new')}" if gated else bend,
            "dense_act_fn": bend,
            "is_gated_act": gated,
            "tie_word_embeddings": config.output.tied,
            "scale_decoder_outputs": config.output.multiplier != 1.0,
        }

    def table(self, config: ModelConfig) -> Table:
        gated = _is_gated(expect_translator(config).encoder)
        return ends(config) | _blocks(GATED if gated else PLAIN)

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        return ends_again(config)

    def notes(self, given: Given) -> list[str]:
        return told_dropout(given, "dropout_rate", 0.1)


def _stack(given: Given, layers: int, both_ways: bool) -> Stack:
    width = given.size("d_model")
    heads = given.size("num_heads")
    own = given.size("d_kv")
    return Stack(
        layers=layers,
        width=width,
        attention=MultiHead(
            heads=heads,
            head_width=None if own * heads == width else own,
            bias=False,
            output_bias=False,
            scale=1.0,
        ),
        feed_forward=_feed_forward(given),
        position=RelativeBuckets(
            buckets=given.size("relative_attention_num_buckets", 32),
            max_distance=given.size("relative_attention_max_distance", 128),
            bidirectional=both_ways,
        ),
        norm=RMSNorm(eps=given.positive("layer_norm_epsilon", 1e-6)),
        norm_placement=PreNorm(),
        dropout=given.share("dropout_rate", 0.1),
    )


def _feed_forward(given: Given) -> Any:
    """One field says gate and activation; two others, where they are written, overrule it."""
    if given.word("model_type") == "mt5":
        usual = "gated-gelu"
    else:
        usual = "relu"
    whole = given.word("feed_forward_proj", usual)
    if whole == "gated-gelu":
        bend = "gelu_new"
    else:
        bend = whole.removeprefix("gated-")
    gated = given.flag("is_gated_act", whole.startswith("gated-"))
    said = Given({"dense_act_fn": given.word("dense_act_fn", bend)}, given.place)
    return feed_forward(said, "dense_act_fn", given.size("d_ff"), bias=False, gated=gated)


def _is_gated(stack: Stack) -> bool:
    return isinstance(stack.feed_forward, GEGLU | SwiGLU)


def _scaled(given: Given) -> bool:
    """Whether states are made √D times smaller before they are scored: only in the first T5.

    Its successors were told apart by their untied head before there was a field for it.
    """
    if given.word("model_type") == "mt5":
        return False
    return given.flag("scale_decoder_outputs", given.flag("tie_word_embeddings", True))


def _blocks(widened: Mapping[str, str]) -> Table:
    rows: Table = {}
    for side, parts in PLACES.items():
        for part, (number, name) in parts.items():
            place = f"{side}.block.{{i}}.layer.{number}"
            rows[f"{side}.{{i}}.{part}_in"] = f"{place}.layer_norm"
            if part == "feed_forward":
                matrices = widened
            else:
                matrices = ATTENTION
            for ours, theirs in matrices.items():
                rows[f"{side}.{{i}}.{part}.{ours}"] = f"{place}.{name}.{theirs}"
        first = f"{side}.block.0.layer.0.SelfAttention"
        rows[f"{side}.position.weight"] = f"{first}.relative_attention_bias.weight"
        rows[f"{side}.norm_out"] = f"{side}.final_layer_norm"
    return rows
