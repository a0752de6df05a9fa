"""What the formats of one model family share: heads of encoders, windows and sizes of decoders,
and the embeddings of encoder–decoders.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qkv.checkpoints.config_fields import rope_fields
from qkv.checkpoints.config_reader import ConfigReader, HeadName
from qkv.checkpoints.format import require_encoder_decoder, require_rope
from qkv.checkpoints.tensor_names import TensorMap
from qkv.errors import ConfigError
from qkv.model import (
    Classify,
    DecoderOnly,
    LocalAttention,
    MaskedToken,
    Mean,
    ModelConfig,
    NextToken,
    Output,
    Rope,
    Stack,
    TextVector,
)

# Encoders.

HEADS_BY_SUFFIX: dict[str, HeadName] = {
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "ForSequenceClassification": "labels",
    "Model": "vector",
}

# A body without a head has no output of its own; the mean of its states is the usual embedding.
MEAN_VECTOR = TextVector(pooling=Mean(), normalize=False)

MAX_LABELS = 100_000


def head_name(reader: ConfigReader) -> HeadName:
    """The head to build: the one the caller asks for, else that of the checkpoint's class."""
    if reader.head is not None:
        return reader.head
    classes = [str(name) for name in reader.items("architectures")]
    if not classes:
        raise reader.error("architectures", None, 'a class, for example ["BertModel"]')
    return next(head for suffix, head in HEADS_BY_SUFFIX.items() if classes[0].endswith(suffix))


def label_names(reader: ConfigReader) -> tuple[str, ...]:
    """The labels of a classifier, in the order of their ids."""
    names = reader.fields.get("id2label")
    if names is None:
        count = reader.size("num_labels", 2, MAX_LABELS)
        names = {str(i): f"LABEL_{i}" for i in range(count)}
    if not isinstance(names, dict) or set(names) != {str(i) for i in range(len(names))}:
        raise reader.error("id2label", names, "one name per label, with ids from 0")
    if reader.fields.get("problem_type") not in (None, "single_label_classification"):
        raise ConfigError(
            f"{reader.location}: problem_type is {reader.string('problem_type')}, but only "
            f"single_label_classification is supported"
        )
    return tuple(str(names[str(i)]) for i in range(len(names)))


def output_fields(output: Output, dropout_field: str) -> dict[str, Any]:
    """The config.json fields of an output; `dropout_field` names the dropout of a classifier."""
    match output:
        case MaskedToken():
            return {"tie_word_embeddings": output.tied}
        case Classify():
            return {
                dropout_field: output.dropout,
                "id2label": {str(i): name for i, name in enumerate(output.labels)},
                "label2id": {name: i for i, name in enumerate(output.labels)},
            }
        case _:
            return {}


def class_name(class_prefix: str, output: Output) -> str:
    """The `transformers` class with this output, such as BertForMaskedLM."""
    if isinstance(output, MaskedToken):
        return f"{class_prefix}ForMaskedLM"
    if isinstance(output, Classify):
        return f"{class_prefix}ForSequenceClassification"
    return f"{class_prefix}Model"


def tensor_patterns(names: Iterable[object]) -> tuple[str, ...]:
    """Regexes for parameters (names that end in .bias) and for modules (weight and bias)."""
    patterns = []
    for name in sorted(map(str, names)):
        pattern = re.escape(name)
        if not name.endswith(".bias"):
            pattern += r"\.(weight|bias)"
        patterns.append(pattern)
    return tuple(patterns)


@dataclass(frozen=True)
class EncoderHeads:
    """Tensor names of the heads of BERT and its relatives.

    mlm: the masked-language-model head; its matrix is `mlm.decoder`, its bias `mlm.bias`.
    """

    mlm: str
    masked: TensorMap
    pooler: TensorMap
    labels: TensorMap

    def tensor_map(self, output: Output) -> TensorMap:
        match output:
            case MaskedToken(tied=True):
                return self.masked | {"output.output.bias": f"{self.mlm}.bias"}
            case MaskedToken():
                return self.masked | {"output.output": f"{self.mlm}.decoder"}
            case Classify():
                return self.labels
            case TextVector(dense=True):
                return self.pooler
            case _:
                return {}

    def aliases(self, output: Output, embedding: str) -> dict[str, str]:
        """Second names in an MLM head that is tied to the embedding."""
        if not isinstance(output, MaskedToken) or not output.tied:
            return {}
        return {
            f"{self.mlm}.decoder.weight": embedding,
            f"{self.mlm}.decoder.bias": f"{self.mlm}.bias",
        }

    def duplicates(self, output: Output) -> dict[str, str]:
        """An untied MLM head has a second bias in `transformers`, stored but never used."""
        if not isinstance(output, MaskedToken) or output.tied:
            return {}
        return {f"{self.mlm}.bias": f"{self.mlm}.decoder.bias"}

    def unused_tensors(self, output: Output) -> tuple[str, ...]:
        """The pooler next to other outputs; any head next to a text vector."""
        names = {*self.pooler.values(), f"{self.mlm}.bias"}
        if isinstance(output, TextVector):
            names |= {*self.masked.values(), *self.labels.values(), f"{self.mlm}.decoder"}
        return tensor_patterns(names - set(self.tensor_map(output).values()))


# Decoders.

SLIDING = "sliding_attention"
FULL = "full_attention"
DEFAULT_WINDOW = 4096


def require_full_rotary(position: Rope, reader: ConfigReader) -> Rope:
    """Refuses partial rotary positions, where the reference implementation ignores the factor."""
    if position.fraction != 1.0:
        raise ConfigError(
            f"{reader.location}: partial_rotary_factor is {position.fraction}, but "
            f"{reader.string('model_type')} models rotate whole heads"
        )
    return position


def read_kv_heads(reader: ConfigReader, heads: int) -> int | None:
    """The number of key/value heads; None if every query head has its own."""
    kv_heads = reader.size("num_key_value_heads", heads)
    return None if kv_heads == heads else kv_heads


def read_head_width(reader: ConfigReader, heads: int, default: int | None = None) -> int | None:
    """The width of a head; None if it is the model's width divided by the heads."""
    width = reader.size("hidden_size")
    head_width = reader.size("head_dim", default or width // heads or 1)
    return None if head_width * heads == width else head_width


def read_window_size(reader: ConfigReader) -> int | None:
    """The size of the attention window; None if the field is null, which differs from absent."""
    if reader.fields.get("sliding_window", DEFAULT_WINDOW) is None:
        return None
    return reader.size("sliding_window", DEFAULT_WINDOW)


def read_sliding_layers(
    reader: ConfigReader, layers: int, is_sliding: Callable[[int], bool]
) -> Sequence[int]:
    """The layers with a window: from `layer_types`, or where it is absent from `is_sliding`."""
    types = reader.items("layer_types")
    if not types:
        return [i for i in range(layers) if is_sliding(i)]
    if len(types) != layers or not all(name in (SLIDING, FULL) for name in types):
        raise reader.error("layer_types", list(types), f"{SLIDING} or {FULL} for each layer")
    return [i for i, name in enumerate(types) if name == SLIDING]


def local_attention(
    size: int | None, sliding: Sequence[int], layers: int, position: Rope | None = None
) -> LocalAttention | None:
    """Causal windows of `size` positions, the current one included, in the `sliding` layers."""
    if size is None or not sliding:
        return None
    some = None if len(sliding) == layers else tuple(sliding)
    return LocalAttention(before=size - 1, layers=some, position=position)


def layer_types(stack: Stack) -> list[str]:
    """The value of `layer_types`: one name per layer."""
    types = [FULL] * stack.layers
    if stack.local is not None:
        for i in range(stack.layers):
            if stack.local.applies_to(i):
                types[i] = SLIDING
    return types


def decoder_fields(config: DecoderOnly) -> dict[str, Any]:
    """The config.json fields that all formats in Llama's style share."""
    stack = config.decoder
    attention = stack.attention
    return {
        "vocab_size": config.embedding.vocabulary,
        "hidden_size": stack.width,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.num_kv_heads,
        "head_dim": attention.key_width(stack.width),
        "intermediate_size": stack.feed_forward.width,
        "max_position_embeddings": config.length,
        "rms_norm_eps": stack.norm.eps,
        "rope_parameters": rope_fields(require_rope(stack)),
        "tie_word_embeddings": is_tied(config),
    }


def is_tied(config: ModelConfig) -> bool:
    return isinstance(config.output, NextToken) and config.output.tied


def lm_head_alias(config: ModelConfig, embedding: str) -> Mapping[str, str]:
    """A tied LM head is the embedding under a second name."""
    if is_tied(config):
        return {LM_HEAD: embedding}
    return {}


# Encoder–decoders.

LM_HEAD = "lm_head.weight"
SHARED_EMBEDDING = "shared.weight"
SOURCE_EMBEDDING = "encoder.embed_tokens.weight"
TARGET_EMBEDDING = "decoder.embed_tokens.weight"
EMBEDDINGS = (SHARED_EMBEDDING, SOURCE_EMBEDDING, TARGET_EMBEDDING)


def has_tied_output(reader: ConfigReader, tensors: Collection[str]) -> bool:
    """Whether the LM head is the target embedding.

    An LM head stored next to an embedding is used whatever the config says, as it may differ and
    `transformers` uses it too. An LM head that is missing but not tied is an error later on.
    """
    has_own_head = LM_HEAD in tensors and any(name in tensors for name in EMBEDDINGS)
    return reader.flag("tie_word_embeddings", True) and not has_own_head


def has_separate_embeddings(tensors: Collection[str]) -> bool:
    """Whether the file holds an embedding for each side."""
    return SOURCE_EMBEDDING in tensors and TARGET_EMBEDDING in tensors


def embedding_map(config: ModelConfig) -> TensorMap:
    """The names of the embeddings and of the LM head."""
    if require_encoder_decoder(config).source is None:
        return {"embedding.weight": SHARED_EMBEDDING, "output.weight": LM_HEAD}
    return {
        "embedding.weight": TARGET_EMBEDDING,
        "source.weight": SOURCE_EMBEDDING,
        "output.weight": LM_HEAD,
    }


def embedding_aliases(config: ModelConfig) -> Mapping[str, str]:
    """Second names of the embeddings."""
    if require_encoder_decoder(config).source is not None:
        return lm_head_alias(config, TARGET_EMBEDDING)
    return {
        SOURCE_EMBEDDING: SHARED_EMBEDDING,
        TARGET_EMBEDDING: SHARED_EMBEDDING,
        **lm_head_alias(config, SHARED_EMBEDDING),
    }
