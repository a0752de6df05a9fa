"""BART and mBART."""

from tests.checkpoints.cases_t5 import OwnHead
from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 97,
    "d_model": 30,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 41,
    "decoder_ffn_dim": 29,
    "max_position_embeddings": 23,
}
BART = ("BartForConditionalGeneration", "BartConfig")
MBART = ("MBartForConditionalGeneration", "MBartConfig")

CASES: dict[str, Peer] = {
    "bart": Peer(*BART, SIZES),
    "bart, scaled": Peer(*BART, SIZES | {"scale_embedding": True, "activation_function": "relu"}),
    "bart, a head in the file": OwnHead(*BART, SIZES),
    "bart, nothing tied": Peer(*BART, SIZES | {"tie_word_embeddings": False}),
    "mbart": Peer(*MBART, SIZES | {"scale_embedding": True}),
    "mbart, nothing tied": Peer(
        *MBART, SIZES | {"tie_word_embeddings": False, "activation_function": "gelu_new"}
    ),
}
