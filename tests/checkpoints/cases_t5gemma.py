"""T5Gemma: two configs in one."""

from typing import Any

from tests.checkpoints.peers import Peer

SIDE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 30,
    "intermediate_size": 41,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "head_dim": 6,
    "max_position_embeddings": 23,
    "query_pre_attn_scalar": 6,
    "layer_types": ["full_attention", "full_attention"],
    "pad_token_id": None,
    "eos_token_id": None,
    "bos_token_id": None,
}
DECODER = SIDE | {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}


def t5gemma(**changes: Any) -> Peer:
    fields = {"encoder": SIDE | changes, "decoder": DECODER | changes, "vocab_size": 97}
    return Peer("T5GemmaForConditionalGeneration", "T5GemmaConfig", fields)


CASES: dict[str, Peer] = {
    "t5gemma": t5gemma(),
    "t5gemma, grouped heads and no caps": t5gemma(
        num_key_value_heads=1,
        head_dim=8,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        hidden_activation="relu",
    ),
}
