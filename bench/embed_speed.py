"""How many texts a second are embedded, beside sentence-transformers, with all-MiniLM-L6-v2.

    python bench/embed_speed.py PATH/TO/data

Three kinds of work: short captions of Multi30k, texts of 8 to 256 tokens, and the captions with
the matrices in 8 bits. All give the same vectors to float32, or as near as the table says. If
onnxruntime, onnx and onnxscript are installed, its dynamic 8 bits take part. Peers are interleaved,
each in a process of its own; medians. Prints a table and one JSON line.
"""

import argparse
import csv
import importlib.util
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from interleaved import Peer, interleave, table
from minilm import minilm
from scipy.stats import spearmanr

from machine import machine
from qkv.engine.engine import Engine
from qkv.engine.optimized import int8_supported
from qkv.machine.resources import reuse_freed_memory
from qkv.model import cost

Embed = Callable[[list[str]], np.ndarray]


def captions(data: Path, count: int) -> list[str]:
    return (data / "multi30k" / "train.en").read_text("utf-8").split("\n")[:count]


def mixed(data: Path, count: int, engine: Engine) -> list[str]:
    """Captions one after the other, until a text has between 8 and 256 tokens with its marks."""
    words = " ".join(captions(data, 29_000)).split()
    lengths = np.random.default_rng(0).integers(8, 256, count)
    texts, at = [], 0
    for length in lengths.tolist():
        text = words[at : at + length - 2]
        while len(engine.tokenizer.encode(" ".join(text))) > length - 2:
            text.pop()
        texts.append(" ".join(text))
        at = (at + length) % (len(words) - 300)
    return texts


def sentence_transformers(model_dir: Path) -> Embed:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(model_dir), device="cpu")
    return lambda texts: model.encode(texts, show_progress_bar=False)


class States(torch.nn.Module):
    """The model with its inputs by place, as the exporter wants them."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.model(**dict(zip(self.names, inputs, strict=True)))
        states: torch.Tensor = outputs.last_hidden_state
        return states


def ours(model_dir: Path, int8: bool, compile: bool) -> Embed:
    engine = Engine.load(model_dir, int8=int8, compile=compile)
    reuse_freed_memory()  # as the commands do
    return engine.embed


def onnx_int8(model_dir: Path, folder: Path) -> Embed:
    """transformers' BERT through onnxruntime with dynamic 8 bits, sorted by length, by 32."""
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModel.from_pretrained(model_dir, attn_implementation="eager").eval()
    inputs = tokenizer(["a short text", "a second one"], return_tensors="pt", padding=True)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "length"} for name in names}
    torch.onnx.export(
        States(model, names), tuple(inputs[name] for name in names), folder / "plain.onnx",
        input_names=names,
        output_names=["states"], dynamic_axes=axes | {"states": {0: "batch", 1: "length"}},
        dynamo=False,
    )  # fmt: skip
    quantize_dynamic(folder / "plain.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(str(folder / "int8.onnx"), options)

    def embed(texts: list[str]) -> np.ndarray:
        order = np.argsort([len(text) for text in texts])
        outputs = np.empty((len(texts), 384), dtype=np.float32)
        for start in range(0, len(order), 32):
            batch = order[start : start + 32]
            inputs = tokenizer(
                [texts[i] for i in batch], padding=True, truncation=True, max_length=256,
                return_tensors="np",
            )  # fmt: skip
            (states,) = session.run(None, {name: inputs[name] for name in names})
            real = inputs["attention_mask"][:, :, None]
            mean = (states * real).sum(axis=1) / real.sum(axis=1)
            outputs[batch] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return outputs

    return embed


def sts(peer: Peer, data: Path) -> float:
    """Spearman's correlation on the test part of STS-B, times 100."""
    with (data / "stsb" / "test.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    a, b = peer.answer([row[0] for row in rows]), peer.answer([row[1] for row in rows])
    return 100 * float(spearmanr((a * b).sum(axis=1), [float(row[2]) for row in rows]).statistic)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--captions", type=int, default=4000)
    parser.add_argument("--mixed", type=int, default=600)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    model_dir, before = minilm(), machine()
    peers = {
        "sentence-transformers": Peer(sentence_transformers, model_dir),
        "qkv": Peer(ours, model_dir, False, False),
        "qkv --compile": Peer(ours, model_dir, False, True),
        "qkv int8 --compile": Peer(ours, model_dir, True, True),
    }
    if int8_supported():  # else that would be float32
        peers["qkv int8"] = Peer(ours, model_dir, True, False)
    with tempfile.TemporaryDirectory() as folder:
        if all(map(importlib.util.find_spec, ("onnxruntime", "onnx", "onnxscript"))):
            peers["onnxruntime int8"] = Peer(onnx_int8, model_dir, Path(folder))
        rows = measure(peers, Engine.load(model_dir), args)
    packages = ["sentence-transformers", "transformers"]
    packages += ["onnxruntime"] if "onnxruntime int8" in peers else []
    versions = {name: version(name) for name in packages}
    print(json.dumps({"bench": "embed_speed", **rows, **before, "versions": versions}))


def measure(peers: dict[str, Peer], engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    short = captions(args.data, args.captions)
    long = mixed(args.data, args.mixed, engine)
    exact = peers["sentence-transformers"].answer(short)
    vectors = {name: peer.answer(short) for name, peer in peers.items()}
    near = {name: (outputs * exact).sum(axis=1) for name, outputs in vectors.items()}
    print("short captions, texts a second")
    rates = interleave(
        {name: partial(peer.seconds, short) for name, peer in peers.items()}, len(short), args.runs
    )
    table(rates, "texts/s", "sentence-transformers")
    print("texts of 8 to 256 tokens, texts a second")
    longer = interleave(
        {name: partial(peer.seconds, long) for name, peer in peers.items()}, len(long), args.runs
    )
    table(longer, "texts/s", "sentence-transformers")
    quality = {name: sts(peer, args.data) for name, peer in peers.items()}
    for name in peers:
        cosines = f"cosine to float32 {near[name].mean():.5f} (least {near[name].min():.5f})"
        print(f"{name:<28} STS-B {quality[name]:.2f}   {cosines}")
    config = engine.model.config
    tokens = sum(
        len(engine.tokenizer.add_special_tokens(ids)) for ids in engine.tokenizer.encode_many(short)
    )
    work = cost(config, length=round(tokens / len(short))).forward_flops * tokens / len(short)
    return {
        "captions_per_second": rates,
        "mixed_per_second": longer,
        "largest_difference": {
            name: float(np.abs(vectors[name] - exact).max()) for name in ("qkv", "qkv --compile")
        },
        "cosine": {name: float(each.mean()) for name, each in near.items()},
        "sts_b": quality,
        "gflops": {name: rate * work / 1e9 for name, rate in rates.items()},
        "texts": {"captions": len(short), "mixed": len(long)},
        "runs": args.runs,
    }


if __name__ == "__main__":
    main()
