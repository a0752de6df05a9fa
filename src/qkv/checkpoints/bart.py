"""BART (Lewis et al. 2020), and mBART (Liu et al. 2020), which normalises before each part."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.checkpoints.config_fields import activation_name, feed_forward
from qkv.checkpoints.families import SHARED, TARGET, ends, ends_again, stored_apart, tied_output
from qkv.checkpoints.format import Given, Layout, expect_translator, told_dropout
from qkv.checkpoints.tensor_names import Flat, Table
from qkv.model import (
    Embedding,
    EncoderDecoder,
    LayerNorm,
    Learned,
    MultiHead,
    NextToken,
    PostNorm,
    PreNorm,
    Stack,
)
from qkv.model.build import ModelConfig

SIDES = ("encoder", "decoder")
BIAS = "final_logits_bias"
BLOCK = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "cross.query": "encoder_attn.q_proj",
    "cross.key": "encoder_attn.k_proj",
    "cross.value": "encoder_attn.v_proj",
    "cross.output": "encoder_attn.out_proj",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
}
NORMS = {  # the same names before a part and after it
    "attention": "self_attn_layer_norm",
    "cross": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
}
STACKS: Table = {
    **{
        f"{s}.{{i}}.{our}": f"{s}.layers.{{i}}.{their}"
        for s in SIDES
        for our, their in BLOCK.items()
    },
    **{
        f"{s}.{{i}}.{part}_{where}": f"{s}.layers.{{i}}.{their}"
        for s in SIDES
        for part, their in NORMS.items()
        for where in ("in", "out")
    },
    **{f"{s}.norm_in": f"{s}.layernorm_embedding" for s in SIDES},
    **{f"{s}.norm_out": f"{s}.layer_norm" for s in SIDES},
    **{f"{s}.position.weight": f"{s}.embed_positions.weight" for s in SIDES},
    "output.bias": Flat(BIAS),
}


class Bart(Layout):
    kinds: ClassVar[tuple[str, ...]] = ("bart", "mbart")
    title = "BART, mBART"
    families: ClassVar[tuple[str, ...]] = ("Bart", "MBart")
    prefix = "model."
    head = (BIAS, "lm_head.")
    leftovers = (r"(encoder|decoder)\.version",)
    architectures = ("ForConditionalGeneration", "Model")
    input_norm: ClassVar[bool] = True
    waves: ClassVar[bool] = False

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        given.must_be("is_encoder_decoder", [True], "makes it one half, which cannot be carried")
        self._expect_arrangement(given)
        target, source = self.embeddings(given, tensors)
        return EncoderDecoder(
            length=given.size("max_position_embeddings"),
            embedding=target,
            source=source,
            encoder=self.stack(given, "encoder"),
            decoder=self.stack(given, "decoder"),
            output=NextToken(tied=tied_output(given, tensors), bias=BIAS in tensors),
        )

    def embeddings(
        self, given: Given, tensors: Collection[str]
    ) -> tuple[Embedding, Embedding | None]:
        """Of the target; and of the source, if it has a table of its own."""
        table = Embedding(
            vocabulary=given.size("vocab_size"), scaled=given.flag("scale_embedding", False)
        )
        apart = not given.flag("tie_word_embeddings", True) and stored_apart(tensors)
        return table, table if apart else None

    def stack(self, given: Given, side: str) -> Stack:
        norm = LayerNorm()
        pre = _normalises_before(given)
        return Stack(
            layers=given.layers(f"{side}_layers"),
            width=given.size("d_model"),
            attention=MultiHead(heads=given.size(f"{side}_attention_heads")),
            feed_forward=feed_forward(
                given, "activation_function", given.size(f"{side}_ffn_dim"), bias=True
            ),
            position=self.position(),
            norm=norm,
            norm_placement=PreNorm() if pre else PostNorm(),
            input_norm=norm if self.input_norm else None,
            dropout=given.share("dropout", 0.1),
        )

    def position(self) -> Any:
        return Learned(offset=2)

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_translator(config)
        if config.encoder.norm_placement.kind == "pre_norm":
            kind = "mbart"
        else:
            kind = "bart"
        return {
            "model_type": kind,
            "architectures": [f"{'MBart' if kind == 'mbart' else 'Bart'}ForConditionalGeneration"],
            "vocab_size": config.embedding.vocabulary,
            "tie_word_embeddings": config.source is None,
            **stack_fields(config),
        }

    def table(self, config: ModelConfig) -> Table:
        return ends(config) | STACKS

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        return ends_again(config)

    def copies(self, config: ModelConfig) -> Mapping[str, str]:
        """A third table, which no one reads where each side has its own, is still looked for."""
        if expect_translator(config).source is None:
            return {}
        return {f"{self.prefix}{SHARED}": f"{self.prefix}{TARGET}"}

    def unused(self, config: ModelConfig) -> tuple[str, ...]:
        if expect_translator(config).source is None:
            return ()
        return (r"shared\.weight",)

    def notes(self, given: Given) -> list[str]:
        said = told_dropout(given, "attention_dropout", 0.0)
        for side in SIDES:
            if rate := given.share(f"{side}_layerdrop"):
                said.append(f"{side} layers left out ({rate:g}), which only training would do")
        return said

    def _expect_arrangement(self, given: Given) -> None:
        """Old configs say how layers are arranged; today the kind does, and they must agree."""
        before = _normalises_before(given)
        kind = given.word("model_type")
        for name, usual in {
            "normalize_before": before,
            "add_final_layer_norm": before,
            "normalize_embedding": self.input_norm,
            "static_position_embeddings": self.waves,
        }.items():
            given.must_be(name, [usual], f"{kind} models do not have")


def _normalises_before(given: Given) -> bool:
    return given.word("model_type") == "mbart"


def stack_fields(config: EncoderDecoder) -> dict[str, Any]:
    """What all configs of this style name alike."""
    found: dict[str, Any] = {
        "is_encoder_decoder": True,
        "d_model": config.encoder.width,
        "max_position_embeddings": config.length,
        "scale_embedding": config.embedding.scaled,
        "activation_function": activation_name(config.encoder.feed_forward),
        "dropout": config.decoder.dropout,
        "activation_dropout": config.decoder.dropout,
        "attention_dropout": 0.0,
    }
    for side, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        found[f"{side}_layers"] = stack.layers
        found[f"{side}_attention_heads"] = stack.attention.heads
        found[f"{side}_ffn_dim"] = stack.feed_forward.width
    return found
