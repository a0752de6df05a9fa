"""Encoders of the ALBERT kind: layers share weights, and the embedding table is narrow."""

from tests.checkpoints.cases_bert import LABELS
from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 79,
    "embedding_size": 13,
    "hidden_size": 36,
    "intermediate_size": 61,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 29,
    "type_vocab_size": 3,
    "pad_token_id": 0,
}


def albert(model: str, **overrides: object) -> Peer:
    return Peer(model, "AlbertConfig", SIZES | overrides)


CASES = {
    "albert": albert("AlbertModel"),
    "albert, one group": albert("AlbertModel", num_hidden_groups=1, hidden_act="gelu"),
    "albert, a group a layer": albert("AlbertModel", num_hidden_groups=4, num_hidden_layers=4),
    "albert, as wide a table": albert("AlbertForMaskedLM", embedding_size=36),
    "albert, masked": albert("AlbertForMaskedLM", hidden_act="relu"),
    "albert, masked and untied": albert("AlbertForMaskedLM", tie_word_embeddings=False),
    "albert, pre-training": albert("AlbertForPreTraining", layer_norm_eps=1e-5),
    "albert, labels": albert("AlbertForSequenceClassification", **LABELS),
}
