"""How many tokens a second one sequence grows by, greedily, beside transformers and llama.cpp.

    python bench/decode_speed.py PATH/TO/stories15M

200 tokens after "Once upon a time". If llama-cpp-python and gguf are installed, the same weights
take part as a GGUF file in float32 and in Q8_0. Interleaved, each in a process of its own;
medians. Prints a table and one JSON line.
"""

import argparse
import importlib.util
import json
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from interleaved import Peer, interleave, table

from machine import machine
from qkv.engine.engine import Engine
from qkv.engine.generate import GREEDY, NGram
from qkv.engine.optimized import int8_supported
from qkv.machine.resources import reuse_freed_memory
from qkv.text import Tokenizer
from qkv.weights import open_weights

PROMPT = "Once upon a time"
Write = Callable[[], list[int]]
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def ours(model_dir: Path, tokens: int, int8: bool, compile: bool, look_up: bool = False) -> Write:
    engine = Engine.load(model_dir, int8=int8, compile=compile)
    reuse_freed_memory()  # as the commands do
    draft = NGram() if look_up else None

    def write() -> list[int]:
        answer = engine.generate(PROMPT, max_tokens=tokens, sampling=GREEDY, draft=draft).finish()
        assert len(answer.tokens) == tokens, "the story ended early"
        return answer.tokens

    return write


def transformers(model_dir: Path, tokens: int) -> Write:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    inputs = tokenizer(PROMPT, return_tensors="pt")

    def write() -> list[int]:
        with torch.inference_mode():
            out = model.generate(**inputs, max_new_tokens=tokens, min_new_tokens=tokens,
                                 do_sample=False, pad_token_id=0)  # fmt: skip
        ids_written: list[int] = out[0, inputs.input_ids.shape[1] :].tolist()
        return ids_written

    return write


def llama_cpp(model_dir: Path, tokens: int, kind: str, folder: Path, ids: list[int]) -> Write:
    from llama_cpp import Llama

    file = as_gguf(model_dir, folder / f"{kind}.gguf", kind)
    model = Llama(str(file), n_ctx=256, n_threads=torch.get_num_threads(), verbose=False)

    def write() -> list[int]:
        model.reset()
        ids_written = []
        for token in model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
            ids_written.append(token)
            if len(ids_written) == tokens:
                break
        return ids_written

    return write


def as_gguf(model_dir: Path, path: Path, kind: str) -> Path:
    """The checkpoint as llama.cpp's converter writes it: rows of queries and keys by pairs."""
    import gguf

    config = json.loads((model_dir / "config.json").read_text("utf-8"))
    quant = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("llama")
    pieces = json.loads((model_dir / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    writer.add_token_list(sorted(pieces, key=pieces.get))
    writer.add_token_scores([-float(i) for i in range(len(pieces))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (len(pieces) - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    with open_weights(model_dir / "model.safetensors") as weights:
        for name in sorted(weights):
            values = weights.read(name, torch.float32).numpy()
            heads = config["num_attention_heads"] if ".q_proj." in name or ".k_proj." in name else 0
            if heads:
                half = values.shape[0] // heads // 2
                values = values.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(values.shape)
            stored = quant if values.ndim > 1 else gguf.GGMLQuantizationType.F32
            packed = gguf.quants.quantize(np.ascontiguousarray(values), stored)
            writer.add_tensor(_stored(name), packed, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stored(name: str) -> str:
    *path, last = name.split(".")
    if path[:2] == ["model", "layers"]:
        return f"blk.{path[2]}.{NAMES['.'.join(path[3:])]}.{last}"
    return f"{NAMES['.'.join(path)]}.{last}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    before, model_dir, tokens = machine(), args.model, args.tokens
    peers = {
        "transformers": Peer(transformers, model_dir, tokens),
        "qkv": Peer(ours, model_dir, tokens, False, False),
        "qkv --compile": Peer(ours, model_dir, tokens, False, True),
        "qkv int8 --compile": Peer(ours, model_dir, tokens, True, True),
    }
    if int8_supported():  # else that would be float32
        peers["qkv int8"] = Peer(ours, model_dir, tokens, True, False)
        peers["qkv int8, look-up"] = Peer(ours, model_dir, tokens, True, False, True)
    packages = ["transformers"]
    with tempfile.TemporaryDirectory() as folder:
        if all(map(importlib.util.find_spec, ("llama_cpp", "gguf"))):
            tokenizer = Tokenizer.load(model_dir / "tokenizer.json")
            ids = tokenizer.add_special_tokens(tokenizer.encode(PROMPT))
            for kind in ("F32", "Q8_0"):
                inputs = (model_dir, tokens, kind, Path(folder), ids)
                peers[f"llama.cpp {kind}"] = Peer(llama_cpp, *inputs)
            packages.append("llama-cpp-python")
        written = {name: peer.answer() for name, peer in peers.items()}
        rates = interleave({n: peer.seconds for n, peer in peers.items()}, tokens, args.runs)
    table(rates, "tokens/s", "transformers")
    agree = {
        name: next((i for i, (a, b) in enumerate(zip(ids, written["transformers"], strict=True))
                    if a != b), tokens)
        for name, ids in written.items()
    }  # fmt: skip
    for name, count in agree.items():
        print(f"{name:<28} the first {count} of {tokens} tokens are those of transformers")
    result = {
        "bench": "decode_speed", "tokens_per_second": rates, "equal_tokens": agree,
        "runs": args.runs, **before, "versions": {name: version(name) for name in packages},
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
