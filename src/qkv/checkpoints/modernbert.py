"""ModernBERT (Warner et al. 2024): rotary positions, and layers that see near among those that
see everything.
"""

from collections.abc import Collection, Mapping
from typing import Any

from qkv.checkpoints.config_fields import (
    BENT,
    activation_name,
    bend_name,
    feed_forward,
    rotary,
    rotary_fields,
)
from qkv.checkpoints.families import (
    FULL,
    SENTENCE,
    SLIDING,
    architecture,
    expect_whole_heads,
    head_of,
    labels_of,
    layer_types,
    output_fields,
    sliding_layers,
    tensors_of,
)
from qkv.checkpoints.format import (
    Given,
    Layout,
    expect_encoder,
    expect_heads,
    expect_rotary,
    told_dropout,
)
from qkv.checkpoints.tensor_names import Joined, Table
from qkv.model import (
    Classify,
    Embedding,
    EncoderOnly,
    First,
    LayerNorm,
    LocalAttention,
    MaskedToken,
    Mean,
    MultiHead,
    PreNorm,
    Rope,
    Stack,
    TextVector,
)
from qkv.model.build import ModelConfig
from qkv.model.output import ActivationName, Output, Pooling

BODY: Table = {
    "embedding.weight": "embeddings.tok_embeddings.weight",
    "encoder.norm_in": "embeddings.norm",
    "encoder.{i}.attention_in": "layers.{i}.attn_norm",
    (
        "encoder.{i}.attention.query",
        "encoder.{i}.attention.key",
        "encoder.{i}.attention.value",
    ): Joined("layers.{i}.attn.Wqkv"),
    "encoder.{i}.attention.output": "layers.{i}.attn.Wo",
    "encoder.{i}.feed_forward_in": "layers.{i}.mlp_norm",
    ("encoder.{i}.feed_forward.gate", "encoder.{i}.feed_forward.up"): Joined("layers.{i}.mlp.Wi"),
    "encoder.{i}.feed_forward.down": "layers.{i}.mlp.Wo",
    "encoder.norm_out": "final_norm",
}
HEADS: Table = {
    "output.change.0": "head.dense",
    "output.change.2": "head.norm",
    "output.output": "decoder",
    "output.output.1": "classifier",
}
BASES = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}
ROPE = ("rope_parameters", "rope_scaling", "max_position_embeddings")  # all that is asked here
POOLINGS: dict[str, Pooling] = {"cls": First(), "mean": Mean()}
NO_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")


class ModernBert(Layout):
    kinds = ("modernbert",)
    title = "ModernBERT, and sentence encoders on it"
    families = ("ModernBert",)
    prefix = "model."
    head = ("head.", "decoder.", "classifier.")
    architectures = ("Model", "ForMaskedLM", "ForSequenceClassification")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        norm = LayerNorm(eps=given.positive("norm_eps", 1e-5), bias=given.flag("norm_bias", False))
        width = given.size("hidden_size")
        inner = given.size("intermediate_size")
        bias = given.flag("attention_bias", False)
        mlp_bias = given.flag("mlp_bias", False)
        stack = Stack(
            layers=given.layers("num_hidden_layers"),
            width=width,
            attention=MultiHead(
                heads=given.size("num_attention_heads"), bias=bias, output_bias=bias
            ),
            feed_forward=feed_forward(given, "hidden_activation", inner, bias=mlp_bias, gated=True),
            position=turning(given, FULL),
            norm=norm,
            norm_placement=PreNorm(skip_first_norm=True),
            input_norm=norm,
            local=window(given),
            dropout=given.share("mlp_dropout", 0.0),
        )
        return EncoderOnly(
            length=given.size("max_position_embeddings"),
            embedding=Embedding(vocabulary=given.size("vocab_size")),
            encoder=stack,
            output=self.output(given, width, norm),
        )

    def output(self, given: Given, width: int, norm: LayerNorm) -> Output:
        head = head_of(given)
        if head == "vector":
            return SENTENCE
        bias = given.flag("classifier_bias", False)
        bend: ActivationName = given.one_of("classifier_activation", BENT, "gelu")
        if head == "masked":
            return MaskedToken(
                tied=given.flag("tie_word_embeddings", True),
                norm=norm,
                bias=bias,
                logit_bias=given.flag("decoder_bias", True),
                activation=bend,
            )
        return Classify(
            labels=labels_of(given),
            pooling=given.one_of("classifier_pooling", POOLINGS, "cls"),
            hidden=width,
            hidden_bias=bias,
            activation=bend,
            norm=norm,
            dropout=given.share("classifier_dropout", 0.0),
        )

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_encoder(config)
        stack = config.encoder
        return {
            "model_type": self.kinds[0],
            "architectures": [architecture(self.families[0], config.output)],
            "vocab_size": config.embedding.vocabulary,
            "hidden_size": stack.width,
            "num_hidden_layers": stack.layers,
            "num_attention_heads": stack.attention.heads,
            "intermediate_size": stack.feed_forward.width,
            "hidden_activation": activation_name(stack.feed_forward, gated=True),
            "max_position_embeddings": config.length,
            "norm_eps": stack.norm.eps,
            "norm_bias": isinstance(stack.norm, LayerNorm) and stack.norm.bias,
            "attention_bias": expect_heads(stack).bias,
            "mlp_bias": stack.feed_forward.bias,
            "mlp_dropout": stack.dropout,
            "embedding_dropout": stack.dropout,
            "attention_dropout": 0.0,
            **turning_fields(stack),
            **head_fields(config.output),
            **dict.fromkeys(NO_TOKENS),  # what the peer has instead may lie beyond the vocabulary
        }

    def table(self, config: ModelConfig) -> Table:
        return BODY | HEADS

    def twins(self, config: ModelConfig) -> Mapping[str, str]:
        tied = isinstance(config.output, MaskedToken) and config.output.tied
        if tied:
            return {"decoder.weight": "embeddings.tok_embeddings.weight"}
        return {}

    def unused(self, config: ModelConfig) -> tuple[str, ...]:
        if not isinstance(config.output, TextVector):
            return ()
        return tensors_of(HEADS.values())

    def labels(self, config: ModelConfig, names: tuple[str, ...]) -> Classify:
        stack = expect_encoder(config).encoder
        return Classify(
            labels=names,
            pooling=Mean(),
            hidden=stack.width,
            hidden_bias=False,
            activation="gelu",
            norm=stack.norm,
        )

    def notes(self, given: Given) -> list[str]:
        notes = told_dropout(given, "attention_dropout", 0.0)
        dropped = given.share("embedding_dropout", 0.0)
        if dropped != given.share("mlp_dropout", 0.0):
            notes.append(f"dropout of embeddings ({dropped:g}), which only training would use")
        return notes


def turning(given: Given, kind: str) -> Rope:
    """How layers of that kind turn queries and keys."""
    if not given.inner("rope_parameters").fields.keys() <= {FULL, SLIDING}:
        said = given.fields["rope_parameters"]
        raise given.wrong("rope_parameters", said, f"an object for {FULL} and one for {SLIDING}")
    asked = {name: given.fields[name] for name in ROPE if name in given.fields}
    name, usual = BASES[kind]
    # null is no base
    if name in given.fields:
        base = given.positive(name)
    else:
        base = usual
    found = rotary(Given(asked, given.place), kind, base)
    return expect_whole_heads(found, given)


def window(given: Given) -> LocalAttention | None:
    """The layers that see near, and how near: as far to the left as to the right."""
    layers = given.layers("num_hidden_layers")
    every = given.size("global_attn_every_n_layers", 3)
    near = tuple(sliding_layers(given, layers, lambda i: i % every > 0))
    if not near:
        return None
    reach = given.size("local_attention", 128) // 2
    own = turning(given, SLIDING)
    return LocalAttention(
        before=reach,
        after=reach,
        layers=None if len(near) == layers else near,
        position=None if own == turning(given, FULL) else own,
    )


def turning_fields(stack: Stack) -> dict[str, Any]:
    """Positions and windows."""
    position = expect_rotary(stack)
    local = stack.local
    types = {"layer_types": layer_types(stack)}
    if local is None:
        return types | {"rope_parameters": {FULL: rotary_fields(position)}}
    return types | {
        "local_attention": 2 * local.before or 1,
        "rope_parameters": {
            FULL: rotary_fields(position),
            SLIDING: rotary_fields(local.position or position),
        },
    }


def head_fields(output: Output) -> dict[str, Any]:
    if isinstance(output, MaskedToken):
        return {
            "tie_word_embeddings": output.tied,
            "classifier_bias": output.bias,
            "decoder_bias": output.logit_bias,
            "classifier_activation": bend_name(output.activation),
        }
    if isinstance(output, Classify):
        pooling = next((name for name, p in POOLINGS.items() if p == output.pooling), "cls")
        return {
            "classifier_pooling": pooling,
            "classifier_bias": output.hidden_bias,
            "classifier_activation": bend_name(output.activation),
            **output_fields(output, "classifier_dropout"),
        }
    return {}
