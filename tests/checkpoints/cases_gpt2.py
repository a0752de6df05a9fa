"""Decoders of the GPT-2 kind."""

from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 97,
    "n_positions": 37,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def gpt2(**overrides: object) -> Peer:
    return Peer("GPT2LMHeadModel", "GPT2Config", SIZES | overrides)


CASES = {
    "gpt2": gpt2(),
    "gpt2, untied": gpt2(tie_word_embeddings=False, n_inner=77),
    "gpt2, unscaled": gpt2(scale_attn_weights=False, n_head=4, layer_norm_epsilon=1e-3),
    "gpt2, relu": gpt2(activation_function="relu", resid_pdrop=0.2, embd_pdrop=0.3),
    "gpt2, exact gelu": gpt2(activation_function="gelu", reorder_and_upcast_attn=True),
}
