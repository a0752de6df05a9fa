"""Encoders of the BERT kind."""

from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 77,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 41,
    "type_vocab_size": 3,
    "pad_token_id": 0,
}
LABELS = {"id2label": {0: "sad", 1: "glad", 2: "mad"}, "label2id": {"sad": 0, "glad": 1, "mad": 2}}


def bert(model: str, **overrides: object) -> Peer:
    return Peer(model, "BertConfig", SIZES | overrides)


CASES = {
    "bert": bert("BertModel"),
    "bert, masked": bert("BertForMaskedLM", hidden_act="gelu_new"),
    "bert, masked and untied": bert("BertForMaskedLM", tie_word_embeddings=False),
    "bert, pre-training": bert("BertForPreTraining", hidden_act="relu"),
    "bert, labels": bert("BertForSequenceClassification", **LABELS, layer_norm_eps=1e-5),
}
