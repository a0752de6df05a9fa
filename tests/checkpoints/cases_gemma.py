"""Decoders of the Gemma kind, of all three generations."""

from tests.checkpoints.peers import Peer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 77,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CAPS = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.5}
NO_CAPS = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
TWICE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
}
FULL, SLIDING = "full_attention", "sliding_attention"


def gemma(**overrides: object) -> Peer:
    return Peer("GemmaForCausalLM", "GemmaConfig", SIZES | overrides)


def gemma2(**overrides: object) -> Peer:
    later = {"sliding_window": 5, "query_pre_attn_scalar": 8}
    return Peer("Gemma2ForCausalLM", "Gemma2Config", SIZES | later | overrides)


def gemma3(**overrides: object) -> Peer:
    later = {"sliding_window": 4, "num_hidden_layers": 7, "query_pre_attn_scalar": 8}
    return Peer("Gemma3ForCausalLM", "Gemma3TextConfig", SIZES | later | overrides)


CASES = {
    "gemma": gemma(),
    "gemma, untied": gemma(tie_word_embeddings=False, num_key_value_heads=6, head_dim=10),
    "gemma, biases": gemma(attention_bias=True, num_key_value_heads=1, hidden_act="gelu"),
    "gemma, stretched": gemma(
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 77.0},
        rms_norm_eps=1e-3,
    ),
    "gemma2": gemma2(),
    "gemma2, small caps": gemma2(**CAPS, query_pre_attn_scalar=3, head_dim=10),
    "gemma2, no caps": gemma2(**NO_CAPS, attention_bias=True, num_key_value_heads=6),
    "gemma2, every layer near": gemma2(
        layer_types=[SLIDING] * 3, sliding_window=2, tie_word_embeddings=False
    ),
    "gemma2, no layer near": gemma2(layer_types=[FULL] * 3, hidden_activation="silu"),
    "gemma3": gemma3(),
    "gemma3, two ropes": gemma3(rope_parameters=TWICE, head_dim=10, query_pre_attn_scalar=5),
    "gemma3, one rope": gemma3(rope_parameters=dict.fromkeys((FULL, SLIDING), TWICE[FULL])),
    "gemma3, every second": gemma3(
        layer_types=[FULL, SLIDING, FULL, SLIDING],
        num_hidden_layers=4,
        attention_bias=True,
        tie_word_embeddings=False,
        rms_norm_eps=1e-3,
    ),
    "gemma3, no layer near": gemma3(layer_types=[FULL] * 2, num_hidden_layers=2),
    "gemma3, every layer near": gemma3(
        layer_types=[SLIDING] * 2, num_hidden_layers=2, final_logit_softcapping=1.5
    ),
}
