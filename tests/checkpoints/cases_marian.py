"""Marian, whose position tables stay the waves they are."""

from dataclasses import dataclass
from typing import Any

import torch
from tests.checkpoints.cases_t5 import OwnHead
from tests.checkpoints.peers import Peer


@dataclass(frozen=True)
class MarianPeer(Peer):
    def make(self, seed: int = 0) -> Any:
        model = super().make(seed)
        with torch.no_grad():
            for stack in (model.model.encoder, model.model.decoder):
                stack.embed_positions.weight.copy_(stack.embed_positions.create_weight())
        return model


@dataclass(frozen=True)
class OwnHeadMarian(OwnHead, MarianPeer):
    pass


SIZES = {
    "vocab_size": 97,
    "d_model": 35,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 7,
    "encoder_ffn_dim": 41,
    "decoder_ffn_dim": 29,
    "max_position_embeddings": 23,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": 3,
    "decoder_start_token_id": 3,
    "eos_token_id": 0,
}
MARIAN = ("MarianMTModel", "MarianConfig")
APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 61}

CASES: dict[str, Peer] = {
    "marian": MarianPeer(*MARIAN, SIZES),
    "marian, plain embeddings": MarianPeer(
        *MARIAN, SIZES | {"scale_embedding": False, "activation_function": "relu", "d_model": 70}
    ),
    "marian, two vocabularies": MarianPeer(*MARIAN, SIZES | APART),
    "marian, two vocabularies and a head": MarianPeer(
        *MARIAN, SIZES | APART | {"tie_word_embeddings": False}
    ),
    "marian, nothing tied": MarianPeer(*MARIAN, SIZES | {"tie_word_embeddings": False}),
    "marian, a head in the file": OwnHeadMarian(*MARIAN, SIZES),
}
