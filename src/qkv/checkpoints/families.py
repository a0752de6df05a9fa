"""What public encoders have in common: their outputs, and where these are stored."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qkv.checkpoints.config_fields import rotary_fields
from qkv.checkpoints.format import Given, Head, expect_rotary, expect_translator
from qkv.checkpoints.tensor_names import Table
from qkv.errors import ConfigError
from qkv.model import (
    Classify,
    DecoderOnly,
    LocalAttention,
    MaskedToken,
    Mean,
    NextToken,
    Rope,
    Stack,
    TextVector,
)
from qkv.model.build import ModelConfig
from qkv.model.output import Output

# FOLDED layout/decoders: What the layouts of decoders share: their words for sizes, windows and
#   a tied output.
# FOLDED layout/translators: What public encoder–decoders have in common: where their embeddings
#   and their head are stored.

ENDINGS: dict[str, Head] = {
    "ForMaskedLM": "masked",
    "ForPreTraining": "masked",
    "ForSequenceClassification": "labels",
    "Model": "vector",
}

SENTENCE = TextVector(pooling=Mean(), normalize=False)  # what a body without a head is used for


def head_of(given: Given) -> Head:
    """The output that is asked for, else the one the checkpoint's class has."""
    if given.head is not None:
        return given.head
    said = [str(name) for name in given.items("architectures")]
    if not said:
        raise given.wrong("architectures", None, 'a class, as in ["BertModel"],')
    return next(head for ending, head in ENDINGS.items() if said[0].endswith(ending))


def labels_of(given: Given) -> tuple[str, ...]:
    """The names of the labels in the order of their numbers."""
    names = given.fields.get("id2label")
    if names is None:
        names = {str(i): f"LABEL_{i}" for i in range(given.size("num_labels", 2, 100_000))}
    if not isinstance(names, dict) or set(names) != {str(i) for i in range(len(names))}:
        raise given.wrong("id2label", names, "one name for each label, numbered from 0")
    if given.fields.get("problem_type") not in (None, "single_label_classification"):
        raise ConfigError(
            f"{given.place}: problem_type is {given.word('problem_type')}, but only one label of "
            f"several can be carried (single_label_classification)"
        )
    return tuple(str(names[str(i)]) for i in range(len(names)))


def output_fields(output: Output, dropout: str) -> dict[str, Any]:
    """What configs say of an output; `dropout` is the field for that of a label's network."""
    if isinstance(output, MaskedToken):
        return {"tie_word_embeddings": output.tied}
    if not isinstance(output, Classify):
        return {}
    names = dict(enumerate(output.labels))
    return {
        dropout: output.dropout,
        "id2label": {str(i): name for i, name in names.items()},
        "label2id": {name: i for i, name in names.items()},
    }


def architecture(family: str, output: Output) -> str:
    """The class that has this output, as in BertForMaskedLM."""
    if isinstance(output, MaskedToken):
        return f"{family}ForMaskedLM"
    if isinstance(output, Classify):
        return f"{family}ForSequenceClassification"
    return f"{family}Model"


def tensors_of(places: Iterable[object]) -> tuple[str, ...]:
    """The tensors at these places, as regular expressions: a bias itself, or a module's two."""
    names = sorted(map(str, places))
    return tuple(re.escape(n) + ("" if n.endswith(".bias") else r"\.(weight|bias)") for n in names)


@dataclass(frozen=True)
class Heads:
    """Where BERT and its kin keep their outputs: a masked head, a pooler, and labels."""

    place: str  # of the masked head: its matrix is `place.decoder`, its bias `place.bias`
    masked: Table
    pooler: Table
    labels: Table

    def table(self, output: Output) -> Table:
        """The rows of this output; a masked head with a matrix of its own has its bias there."""
        if isinstance(output, Classify):
            return self.labels
        if not isinstance(output, MaskedToken):
            if isinstance(output, TextVector) and output.dense:
                return self.pooler
            return {}
        bias: Table = {"output.output.bias": f"{self.place}.bias"}
        own: Table = {"output.output": f"{self.place}.decoder"}
        return self.masked | (bias if output.tied else own)

    def twins(self, output: Output, table: str) -> dict[str, str]:
        """Second names in the masked head, if its matrix is the embedding table."""
        if not isinstance(output, MaskedToken) or not output.tied:
            return {}
        at = self.place
        return {f"{at}.decoder.weight": table, f"{at}.decoder.bias": f"{at}.bias"}

    def copies(self, output: Output) -> dict[str, str]:
        """An untied masked head has a second bias, which is stored but never used."""
        if not isinstance(output, MaskedToken) or output.tied:
            return {}
        return {f"{self.place}.bias": f"{self.place}.decoder.bias"}

    def unused(self, output: Output) -> tuple[str, ...]:
        """A pooler beside other outputs; beside a text's vector any head."""
        spare = {*self.pooler.values(), f"{self.place}.bias"}
        if isinstance(output, TextVector):
            spare |= {*self.masked.values(), *self.labels.values(), f"{self.place}.decoder"}
        return tensors_of(spare - set(self.table(output).values()))


SLIDING = "sliding_attention"
FULL = "full_attention"

ABSENT_WINDOW = 4096


def expect_whole_heads(position: Rope, given: Given) -> Rope:
    """Rotary positions that turn all of a head, where a layout's programs ignore a share."""
    if position.fraction != 1.0:
        raise ConfigError(
            f"{given.place}: partial_rotary_factor is {position.fraction}, but models of type "
            f"{given.word('model_type')} turn whole heads"
        )
    return position


def grouped(given: Given, heads: int) -> int | None:
    """Key/value heads, if there are fewer than heads."""
    shared = given.size("num_key_value_heads", heads)
    if shared == heads:
        return None
    return shared


def head_width(given: Given, heads: int, absent: int | None = None) -> int | None:
    """The width of a head, if it is not the model's width shared out."""
    width = given.size("hidden_size")
    own = given.size("head_dim", absent or width // heads or 1)
    if own * heads == width:
        return None
    return own


def window_size(given: Given) -> int | None:
    """How many positions a window has; none if the field says null, which is not to be absent."""
    if given.fields.get("sliding_window", ABSENT_WINDOW) is None:
        return None
    return given.size("sliding_window", ABSENT_WINDOW)


def sliding_layers(given: Given, layers: int, usual: Callable[[int], bool]) -> Sequence[int]:
    """The layers with a window: those that `layer_types` names, or for which `usual` holds."""
    types = given.items("layer_types")
    if not types:
        return [i for i in range(layers) if usual(i)]
    if len(types) != layers or not all(kind in (SLIDING, FULL) for kind in types):
        raise given.wrong("layer_types", list(types), f"{SLIDING} or {FULL} for each layer")
    return [i for i, kind in enumerate(types) if kind == SLIDING]


def window(
    size: int | None, near: Sequence[int], layers: int, position: Rope | None = None
) -> LocalAttention | None:
    """Layers that see themselves and what came right before, `size` positions in all."""
    if size is None or not near:
        return None
    some = None if len(near) == layers else tuple(near)
    return LocalAttention(before=size - 1, layers=some, position=position)


def layer_types(stack: Stack) -> list[str]:
    """The type of each layer, as `layer_types` has it."""
    local = stack.local
    return [
        FULL if local is None or not local.applies_to(i) else SLIDING for i in range(stack.layers)
    ]


def decoder_fields(config: DecoderOnly) -> dict[str, Any]:
    """What all configs of Llama's style name alike."""
    stack = config.decoder
    heads = config.decoder.attention
    return {
        "vocab_size": config.embedding.vocabulary,
        "hidden_size": stack.width,
        "num_hidden_layers": stack.layers,
        "num_attention_heads": heads.heads,
        "num_key_value_heads": heads.num_kv_heads,
        "head_dim": heads.key_width(stack.width),
        "intermediate_size": stack.feed_forward.width,
        "max_position_embeddings": config.length,
        "rms_norm_eps": stack.norm.eps,
        "rope_parameters": rotary_fields(expect_rotary(stack)),
        "tie_word_embeddings": is_tied(config),
    }


def is_tied(config: ModelConfig) -> bool:
    return isinstance(config.output, NextToken) and config.output.tied


def tied_head(config: ModelConfig, table: str) -> Mapping[str, str]:
    """A tied output's matrix is the table under a second name."""
    if is_tied(config):
        return {"lm_head.weight": table}
    return {}


SHARED = "shared.weight"
HEAD = "lm_head.weight"

SOURCE = "encoder.embed_tokens.weight"
TARGET = "decoder.embed_tokens.weight"


def tied_output(given: Given, tensors: Collection[str]) -> bool:
    """Whether the head is the target's table.

    A head that is stored beside a table counts, whatever the config says: it may differ, and then
    others use it too. A head that is missing though it should not be tied is never made up.
    """
    stored = HEAD in tensors and any(table in tensors for table in (SHARED, SOURCE, TARGET))
    return given.flag("tie_word_embeddings", True) and not stored


def stored_apart(tensors: Collection[str]) -> bool:
    """Whether each side has a table in the file."""
    return SOURCE in tensors and TARGET in tensors


def ends(config: ModelConfig) -> Table:
    """The rows of the embeddings and of the head's matrix."""
    tables: Table = {"embedding.weight": SHARED}
    if expect_translator(config).source is not None:
        tables = {"embedding.weight": TARGET, "source.weight": SOURCE}
    return tables | {"output.weight": HEAD}


def ends_again(config: ModelConfig) -> Mapping[str, str]:
    """The embeddings under their second names."""
    if expect_translator(config).source is not None:
        return tied_head(config, TARGET)
    return {SOURCE: SHARED, TARGET: SHARED, **tied_head(config, SHARED)}
