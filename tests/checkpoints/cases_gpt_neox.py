"""Decoders of the GPT-NeoX kind."""

from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 77,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "max_position_embeddings": 41,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
STRETCHED = {
    "rope_type": "linear",
    "factor": 3.0,
    "rope_theta": 777.0,
    "partial_rotary_factor": 0.5,
}


def neox(**overrides: object) -> Peer:
    return Peer("GPTNeoXForCausalLM", "GPTNeoXConfig", SIZES | overrides)


CASES = {
    "gpt-neox": neox(),
    "gpt-neox, tied": neox(tie_word_embeddings=True, hidden_act="gelu_new"),
    "gpt-neox, in turn": neox(use_parallel_residual=False, layer_norm_eps=1e-3),
    "gpt-neox, no biases": neox(attention_bias=False, num_attention_heads=3, rotary_emb_base=20),
    "gpt-neox, half turned": neox(rotary_pct=0.5, rotary_emb_base=100, hidden_dropout=0.2),
    "gpt-neox, all turned": neox(rotary_pct=1.0, hidden_act="relu"),
    "gpt-neox, stretched": neox(rope_parameters=STRETCHED),
}
