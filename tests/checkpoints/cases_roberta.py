"""Encoders of the RoBERTa kind: positions begin after the number of the padding token."""

from tests.checkpoints.cases_bert import LABELS
from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 89,
    "hidden_size": 40,
    "intermediate_size": 71,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "max_position_embeddings": 31,
    "type_vocab_size": 1,
    "pad_token_id": 1,
}


def roberta(model: str, **overrides: object) -> Peer:
    return Peer(model, "RobertaConfig", SIZES | overrides)


CASES = {
    "roberta": roberta("RobertaModel", layer_norm_eps=1e-5),
    "roberta, padding 0": roberta("RobertaModel", pad_token_id=0, type_vocab_size=3),
    "roberta, masked": roberta("RobertaForMaskedLM", hidden_act="relu", pad_token_id=4),
    "roberta, masked and untied": roberta("RobertaForMaskedLM", tie_word_embeddings=False),
    "roberta, labels": roberta(
        "RobertaForSequenceClassification", **LABELS, hidden_act="silu", classifier_dropout=0.3
    ),
    "xlm-roberta": Peer("XLMRobertaModel", "XLMRobertaConfig", SIZES),
    "xlm-roberta, masked": Peer("XLMRobertaForMaskedLM", "XLMRobertaConfig", SIZES),
    "xlm-roberta, labels": Peer(
        "XLMRobertaForSequenceClassification", "XLMRobertaConfig", SIZES | LABELS
    ),
    "camembert, masked": Peer(
        "CamembertForMaskedLM", "CamembertConfig", SIZES | {"hidden_act": "gelu_new"}
    ),
}
