"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020), which is pre-norm instead of post-norm."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from qkv.checkpoints.config_fields import activation_name, read_feed_forward
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import (
    SHARED_EMBEDDING,
    TARGET_EMBEDDING,
    embedding_aliases,
    embedding_map,
    has_separate_embeddings,
    has_tied_output,
)
from qkv.checkpoints.format import CheckpointFormat, attention_dropout_note, require_encoder_decoder
from qkv.checkpoints.tensor_names import Squeeze, TensorMap
from qkv.model import (
    Embedding,
    EncoderDecoder,
    LayerNorm,
    Learned,
    ModelConfig,
    MultiHead,
    NextToken,
    PostNorm,
    PreNorm,
    Stack,
)

SIDES = ("encoder", "decoder")
LOGITS_BIAS = "final_logits_bias"
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
NORMS = {  # pre-norm and post-norm use the same names
    "attention": "self_attn_layer_norm",
    "cross": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
}


def _stack_map() -> TensorMap:
    tensor_map: TensorMap = {"output.bias": Squeeze(LOGITS_BIAS)}
    for side in SIDES:
        for ours, public in BLOCK.items():
            tensor_map[f"{side}.{{i}}.{ours}"] = f"{side}.layers.{{i}}.{public}"
        for part, public in NORMS.items():
            tensor_map[f"{side}.{{i}}.{part}_in"] = f"{side}.layers.{{i}}.{public}"
            tensor_map[f"{side}.{{i}}.{part}_out"] = f"{side}.layers.{{i}}.{public}"
        tensor_map[f"{side}.norm_in"] = f"{side}.layernorm_embedding"
        tensor_map[f"{side}.norm_out"] = f"{side}.layer_norm"
        tensor_map[f"{side}.position.weight"] = f"{side}.embed_positions.weight"
    return tensor_map


class Bart(CheckpointFormat):
    model_types: ClassVar[tuple[str, ...]] = ("bart", "mbart")
    title = "BART, mBART"
    class_prefixes: ClassVar[tuple[str, ...]] = ("Bart", "MBart")
    prefix = "model."
    head_prefixes = (LOGITS_BIAS, "lm_head.")
    obsolete_tensors = (r"(encoder|decoder)\.version",)
    class_suffixes = ("ForConditionalGeneration", "Model")
    input_norm: ClassVar[bool] = True  # a LayerNorm on the embeddings
    sinusoidal: ClassVar[bool] = False

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        reader.require(
            "is_encoder_decoder",
            [True],
            "makes it only a decoder or an encoder and is not supported",
        )
        self._check_variant(reader)
        target, source = self.read_embeddings(reader, tensors)
        return EncoderDecoder(
            length=reader.size("max_position_embeddings"),
            embedding=target,
            source=source,
            encoder=self.read_stack(reader, "encoder"),
            decoder=self.read_stack(reader, "decoder"),
            output=NextToken(tied=has_tied_output(reader, tensors), bias=LOGITS_BIAS in tensors),
        )

    def read_embeddings(
        self, reader: ConfigReader, tensors: Collection[str]
    ) -> tuple[Embedding, Embedding | None]:
        """The embedding of the target; and that of the source, if it has one of its own."""
        embedding = Embedding(
            vocabulary=reader.size("vocab_size"), scaled=reader.flag("scale_embedding", False)
        )
        tied = reader.flag("tie_word_embeddings", True)
        if not tied and has_separate_embeddings(tensors):
            return embedding, embedding
        return embedding, None

    def read_stack(self, reader: ConfigReader, side: str) -> Stack:
        norm = LayerNorm()
        return Stack(
            layers=reader.layers(f"{side}_layers"),
            width=reader.size("d_model"),
            attention=MultiHead(heads=reader.size(f"{side}_attention_heads")),
            feed_forward=read_feed_forward(
                reader, "activation_function", reader.size(f"{side}_ffn_dim"), bias=True
            ),
            position=self.position(),
            norm=norm,
            norm_placement=PreNorm() if _is_pre_norm(reader) else PostNorm(),
            input_norm=norm if self.input_norm else None,
            dropout=reader.fraction("dropout", 0.1),
        )

    def position(self) -> Any:
        return Learned(offset=2)  # as in fairseq: one more than the padding id, which is 1

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder_decoder(config)
        # The two differ in norm placement only, so that decides which one it is.
        model_type = "bart"
        class_prefix = "Bart"
        if config.encoder.norm_placement.kind == "pre_norm":
            model_type = "mbart"
            class_prefix = "MBart"
        return {
            "model_type": model_type,
            "architectures": [f"{class_prefix}ForConditionalGeneration"],
            "vocab_size": config.embedding.vocabulary,
            "tie_word_embeddings": config.source is None,
            **stack_fields(config),
        }

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        return embedding_map(config) | _stack_map()

    def aliases(self, config: ModelConfig) -> Mapping[str, str]:
        return embedding_aliases(config)

    def duplicates(self, config: ModelConfig) -> Mapping[str, str]:
        """transformers expects `shared` even where each side has its own embedding."""
        if require_encoder_decoder(config).source is None:
            return {}
        return {f"{self.prefix}{SHARED_EMBEDDING}": f"{self.prefix}{TARGET_EMBEDDING}"}

    def unused_tensors(self, config: ModelConfig) -> tuple[str, ...]:
        if require_encoder_decoder(config).source is None:
            return ()
        return (r"shared\.weight",)

    def notes(self, reader: ConfigReader) -> list[str]:
        notes = attention_dropout_note(reader, "attention_dropout", 0.0)
        for side in SIDES:
            rate = reader.fraction(f"{side}_layerdrop")
            if rate:
                notes.append(f"LayerDrop in the {side} ({rate:g}), only used in training")
        return notes

    def _check_variant(self, reader: ConfigReader) -> None:
        """Old configs spell out what now follows from the model_type; both must agree."""
        model_type = reader.string("model_type")
        pre_norm = _is_pre_norm(reader)
        expected = {
            "normalize_before": pre_norm,
            "add_final_layer_norm": pre_norm,
            "normalize_embedding": self.input_norm,
            "static_position_embeddings": self.sinusoidal,
        }
        for name, value in expected.items():
            reader.require(name, [value], f"{model_type} models do not have")


def _is_pre_norm(reader: ConfigReader) -> bool:
    return reader.string("model_type") in ("mbart", "pegasus")


def stack_fields(config: EncoderDecoder) -> dict[str, Any]:
    """The config.json fields that all formats in this style share."""
    fields: dict[str, Any] = {
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
        fields[f"{side}_layers"] = stack.layers
        fields[f"{side}_attention_heads"] = stack.attention.heads
        fields[f"{side}_ffn_dim"] = stack.feed_forward.width
    return fields
