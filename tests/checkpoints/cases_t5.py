"""T5, its successors and mT5; and peers whose head is not their table, whatever they say."""

from dataclasses import dataclass
from typing import Any

import torch
from tests.checkpoints.peers import Peer


@dataclass(frozen=True)
class OwnHead(Peer):
    """A peer that ties its head when it is made is given another one afterwards."""

    def make(self, seed: int = 0) -> Any:
        model = super().make(seed)
        drawn = torch.randn(model.lm_head.weight.shape, generator=torch.Generator().manual_seed(7))
        model.lm_head.weight = torch.nn.Parameter(drawn * 0.2)
        return model


SIZES = {
    "vocab_size": 97,
    "d_model": 30,
    "d_kv": 7,
    "d_ff": 41,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 5,
    "relative_attention_num_buckets": 10,
    "relative_attention_max_distance": 13,
}
T5 = ("T5ForConditionalGeneration", "T5Config")
MT5 = ("MT5ForConditionalGeneration", "MT5Config")
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

CASES: dict[str, Peer] = {
    "t5": Peer(*T5, SIZES),
    "t5, heads share the width": Peer(
        *T5, SIZES | {"d_kv": 6, "num_decoder_layers": None, "layer_norm_epsilon": 1e-3}
    ),
    "t5, odd buckets": Peer(
        *T5, SIZES | {"relative_attention_num_buckets": 11, "relative_attention_max_distance": 9}
    ),
    "t5, a head in the file": OwnHead(*T5, SIZES),
    "t5, silu": Peer(*T5, SIZES | {"feed_forward_proj": "silu"}),
    "t5 1.1": OwnHead(*T5, SIZES | GATED),
    "t5 1.1, tied": Peer(*T5, SIZES | GATED),
    "t5 1.1, silu": OwnHead(*T5, SIZES | GATED | {"feed_forward_proj": "gated-silu"}),
    "t5 1.1, exact gelu": OwnHead(*T5, SIZES | GATED | {"dense_act_fn": "gelu"}),
    "mt5": OwnHead(*MT5, SIZES),
    "mt5, tied": Peer(*MT5, SIZES),
}
