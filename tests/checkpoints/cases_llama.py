"""Decoders of the Llama kind."""

from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 77,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 0.5,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}


def llama(**overrides: object) -> Peer:
    return Peer("LlamaForCausalLM", "LlamaConfig", SIZES | overrides)


CASES = {
    "llama": llama(),
    "llama, tied": llama(tie_word_embeddings=True),
    "llama, biases": llama(attention_bias=True, mlp_bias=True, num_key_value_heads=6),
    "llama, wide heads": llama(head_dim=10, rms_norm_eps=1e-3),
    "llama 3": llama(rope_parameters=LLAMA3, tie_word_embeddings=True),
    "llama, linear": llama(
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 777.0}
    ),
    "llama, yarn": llama(rope_parameters=YARN),
    "mistral": Peer("MistralForCausalLM", "MistralConfig", SIZES | {"sliding_window": 5}),
    "mistral, no window": Peer(
        "MistralForCausalLM", "MistralConfig", SIZES | {"sliding_window": None, "head_dim": 6}
    ),
    "qwen2": Peer("Qwen2ForCausalLM", "Qwen2Config", SIZES | {"tie_word_embeddings": True}),
    "qwen2, window": Peer(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        SIZES | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3": Peer("Qwen3ForCausalLM", "Qwen3Config", SIZES | {"head_dim": 10}),
    "apertus": Peer(
        "ApertusForCausalLM",
        "ApertusConfig",
        SIZES | {"hidden_act": "relu2", "head_dim": 10, "rope_parameters": LLAMA3},
    ),
    "qwen3, biases": Peer(
        "Qwen3ForCausalLM", "Qwen3Config", SIZES | {"head_dim": 8, "attention_bias": True}
    ),
}
