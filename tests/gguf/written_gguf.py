"""GGUF files as llama.cpp's own converter writes them, by its own library."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

gguf = pytest.importorskip("gguf", reason="needs the gguf package, which writes the files")
transformers = pytest.importorskip("transformers", reason="needs the published models")

Kind = gguf.GGMLQuantizationType
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def stored_name(name: str) -> str:
    *path, last = name.split(".")
    if path[:2] == ["model", "layers"]:
        return f"blk.{path[2]}.{NAMES['.'.join(path[3:])]}.{last}"
    return f"{NAMES['.'.join(path)]}.{last}"


def permute(weights: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """`LlamaModel.permute` of convert_hf_to_gguf.py, as published."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def write(
    path: Path,
    architecture: str,
    tensors: Iterable[tuple[str, np.ndarray[Any, Any], Any]] = (),
    describe: Callable[[Any], None] = lambda writer: None,
) -> Path:
    """Tensors as (name, float32 values, kind); a vector always stays float32, as there."""
    writer = gguf.GGUFWriter(path, architecture)
    describe(writer)
    for name, values, kind in tensors:
        kind = kind if values.ndim > 1 else Kind.F32
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def describe_model(writer: Any, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if head := getattr(config, "head_dim", None):
        writer.add_rope_dimension_count(head)
        writer.add_key_length(head)
        writer.add_value_length(head)


def write_model(
    path: Path,
    model: Any,
    kind: Any = Kind.F32,
    describe: Callable[[Any], None] = lambda writer: None,
    extra: Iterable[tuple[str, np.ndarray[Any, Any], Any]] = (),
) -> Path:
    """The published model as llama.cpp would convert it; tied embeddings are written once."""
    config = model.config
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    tensors = []
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if config.model_type == "llama" and name.split(".")[-2] in heads:
            values = permute(values, heads[name.split(".")[-2]])
        tensors.append((stored_name(name), values, kind))

    def all_of_it(writer: Any) -> None:
        describe_model(writer, config)
        describe(writer)

    return write(path, config.model_type, [*tensors, *extra], all_of_it)


def random_model(kind: str = "Llama", **changes: Any) -> Any:
    """A published model of random weights, every size different."""
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 101,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "initializer_range": 0.1,  # large enough that a wrong row shows in the logits
    }
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def rebuilt(found: Any) -> Any:
    """The published model that an opened file describes, with its tensors; none may be left."""
    config = getattr(
        transformers, found.config()["architectures"][0].replace("ForCausalLM", "Config")
    )
    model = getattr(transformers, found.config()["architectures"][0])(config(**found.config()))
    weights = found.weights()
    tensors = {name: weights.read(name) for name in weights}
    if found.config()["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors, strict=True)
    return model.eval()


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(ids).logits
