"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and CamemBERT (Martin et al. 2020).

BERT with other heads. Positions are counted from the id of the padding token plus 1, so the first
rows of the position embedding are never used.
"""

from collections.abc import Collection
from typing import Any

from qkv.checkpoints.bert import Bert
from qkv.checkpoints.config_reader import ConfigReader
from qkv.checkpoints.families import EncoderHeads, head_name
from qkv.checkpoints.format import require_encoder
from qkv.errors import ConfigError
from qkv.model import LayerNorm, Learned, MaskedToken, ModelConfig, Output

HEADS = EncoderHeads(
    mlm="lm_head",
    masked={"output.change.0": "lm_head.dense", "output.change.2": "lm_head.layer_norm"},
    pooler={"output.change.0": "pooler.dense"},
    labels={"output.change.0": "classifier.dense", "output.output.1": "classifier.out_proj"},
)
DEFAULT_PAD_ID = 1  # "<pad>" of fairseq


class Roberta(Bert):
    model_types = ("roberta", "xlm-roberta", "camembert")
    title = "RoBERTa, XLM-RoBERTa, CamemBERT, and sentence encoders on them"
    class_prefixes = ("Roberta", "XLMRoberta", "Camembert")
    heads = HEADS
    prefix = "roberta."
    head_prefixes = ("lm_head.", "classifier.")
    obsolete_tensors = (r"embeddings\.position_ids",)
    class_suffixes = ("Model", "ForMaskedLM", "ForSequenceClassification")

    def read_config(self, reader: ConfigReader, tensors: Collection[str]) -> ModelConfig:
        bert = require_encoder(super().read_config(reader, tensors))
        offset = _position_offset(reader)
        if bert.length <= offset:
            expected = f"more than the {offset} rows before the first position"
            raise reader.error("max_position_embeddings", bert.length, expected)
        stack = bert.encoder.model_copy(update={"position": Learned(offset=offset)})
        return bert.model_copy(update={"length": bert.length - offset, "encoder": stack})

    def read_output(
        self, reader: ConfigReader, width: int, norm: LayerNorm, dropout: float
    ) -> Output:
        if head_name(reader) == "masked":  # always GELU, whatever hidden_act is
            return MaskedToken(tied=reader.flag("tie_word_embeddings", True), norm=norm)
        return super().read_output(reader, width, norm, dropout)

    def hf_config(self, config: ModelConfig) -> dict[str, Any]:
        config = require_encoder(config)
        position = config.encoder.position
        if not isinstance(position, Learned):
            raise ConfigError(f"this format needs learned positions, not {position.kind}")
        return super().hf_config(config) | {
            "max_position_embeddings": config.length + position.offset,
            "pad_token_id": position.offset - 1,
        }


def _position_offset(reader: ConfigReader) -> int:
    """The row of the first position in the position embedding."""
    pad_id = reader.number("pad_token_id", DEFAULT_PAD_ID)
    if pad_id < 0 or not pad_id.is_integer():
        raise reader.error("pad_token_id", reader.fields["pad_token_id"], "an integer from 0")
    return int(pad_id) + 1
