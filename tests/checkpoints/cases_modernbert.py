"""Encoders of the ModernBERT kind: every second layer sees three positions either side."""

from tests.checkpoints.cases_bert import LABELS
from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 73,
    "hidden_size": 48,
    "intermediate_size": 59,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "max_position_embeddings": 43,
    "global_attn_every_n_layers": 2,
    "local_attention": 6,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}


def modernbert(model: str, **overrides: object) -> Peer:
    return Peer(model, "ModernBertConfig", SIZES | overrides)


CASES = {
    "modernbert": modernbert("ModernBertModel"),
    "modernbert, biases": modernbert("ModernBertModel", **BIASES, local_attention=5),
    "modernbert, all global": modernbert("ModernBertModel", global_attn_every_n_layers=1),
    "modernbert, all local": modernbert("ModernBertModel", layer_types=["sliding_attention"] * 5),
    "modernbert, one base": modernbert(
        "ModernBertModel", global_rope_theta=70.0, local_rope_theta=70.0, norm_eps=1e-3
    ),
    "modernbert, stretched": modernbert(
        "ModernBertModel", rope_scaling={"rope_type": "linear", "factor": 3.0}
    ),
    "modernbert, masked": modernbert("ModernBertForMaskedLM", hidden_activation="silu"),
    "modernbert, masked and untied": modernbert(
        "ModernBertForMaskedLM", tie_word_embeddings=False, classifier_activation="relu", **BIASES
    ),
    "modernbert, masked without a bias": modernbert(
        "ModernBertForMaskedLM", decoder_bias=False, norm_bias=True
    ),
    "modernbert, untied without a bias": modernbert(
        "ModernBertForMaskedLM", decoder_bias=False, tie_word_embeddings=False
    ),
    "modernbert, labels": modernbert("ModernBertForSequenceClassification", **LABELS),
    "modernbert, labels of the mean": modernbert(
        "ModernBertForSequenceClassification",
        **LABELS,
        **BIASES,
        classifier_pooling="mean",
        classifier_activation="gelu_new",
        hidden_activation="gelu_new",
        classifier_dropout=0.2,
        mlp_dropout=0.1,
        embedding_dropout=0.1,
    ),
}
