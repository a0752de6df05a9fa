"""Encoders of the DistilBERT kind."""

from tests.checkpoints.cases_bert import LABELS
from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 83,
    "dim": 42,
    "hidden_dim": 67,
    "n_layers": 2,
    "n_heads": 3,
    "max_position_embeddings": 37,
    "pad_token_id": 0,
}


def distilbert(model: str, **overrides: object) -> Peer:
    return Peer(model, "DistilBertConfig", SIZES | overrides)


CASES = {
    "distilbert": distilbert("DistilBertModel"),
    "distilbert, waves": distilbert("DistilBertModel", sinusoidal_pos_embds=True),
    "distilbert, masked": distilbert("DistilBertForMaskedLM", activation="relu"),
    "distilbert, masked and untied": distilbert(
        "DistilBertForMaskedLM", tie_word_embeddings=False, activation="gelu_new"
    ),
    "distilbert, labels": distilbert("DistilBertForSequenceClassification", **LABELS),
}
