"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020).

BERT with other heads, and with positions counted from after the number of the padding token.
"""

from collections.abc import Collection
from typing import Any

from qkv.checkpoints.bert import Bert
from qkv.checkpoints.families import Heads, head_of
from qkv.checkpoints.format import Given, expect_encoder
from qkv.errors import ConfigError
from qkv.model import LayerNorm, Learned, MaskedToken
from qkv.model.build import ModelConfig
from qkv.model.output import Output

HEADS = Heads(
    place="lm_head",
    masked={"output.change.0": "lm_head.dense", "output.change.2": "lm_head.layer_norm"},
    pooler={"output.change.0": "pooler.dense"},
    labels={"output.change.0": "classifier.dense", "output.output.1": "classifier.out_proj"},
)
USUAL_PADDING = 1


class Roberta(Bert):
    kinds = ("roberta", "xlm-roberta", "camembert")
    title = "RoBERTa, XLM-RoBERTa, CamemBERT, and sentence encoders on them"
    families = (
        "Roberta",
        "XLMRoberta",
        "Camembert",
    )
    heads = HEADS
    prefix = "roberta."
    head = ("lm_head.", "classifier.")
    leftovers = (r"embeddings\.position_ids",)
    architectures = ("Model", "ForMaskedLM", "ForSequenceClassification")

    def config(self, given: Given, tensors: Collection[str]) -> ModelConfig:
        bert = expect_encoder(super().config(given, tensors))
        before = rows_before(given)
        if bert.length <= before:
            needed = f"more than the {before} rows before the first position"
            raise given.wrong("max_position_embeddings", bert.length, needed)
        stack = bert.encoder.model_copy(update={"position": Learned(offset=before)})
        return bert.model_copy(update={"length": bert.length - before, "encoder": stack})

    def output(self, given: Given, width: int, norm: LayerNorm, dropout: float) -> Output:
        if head_of(given) == "masked":  # its activation is GELU, whatever the blocks have
            return MaskedToken(tied=given.flag("tie_word_embeddings", True), norm=norm)
        return super().output(given, width, norm, dropout)

    def fields(self, config: ModelConfig) -> dict[str, Any]:
        config = expect_encoder(config)
        position = config.encoder.position
        if not isinstance(position, Learned):
            raise ConfigError(f"this layout has learned positions, not {position.kind}")
        return super().fields(config) | {
            "max_position_embeddings": config.length + position.offset,
            "pad_token_id": position.offset - 1,
        }


def rows_before(given: Given) -> int:
    """Rows of the position table before the first that is used: one more than the padding's id."""
    padding = given.number("pad_token_id", USUAL_PADDING)
    if padding < 0 or not padding.is_integer():
        raise given.wrong("pad_token_id", given.fields["pad_token_id"], "a whole number from 0")
    return int(padding) + 1
