"""How many texts a second are embedded, beside sentence-transformers, with all-MiniLM-L6-v2.

    python bench/embed_speed.py PATH/TO/data

Three kinds of work: short captions of Multi30k, texts of 8 to 256 tokens, and the captions with
the matrices in 8 bits. All give the same vectors to float32, or as near as the table says. If
onnxruntime, onnx and onnxscript are installed, its dynamic 8 bits take part. Peers work by turns,
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
from machine import machine
from minilm import minilm
from scipy.stats import spearmanr
from turns import Peer, by_turns, table

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


def sentence_transformers(place: Path) -> Embed:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(place), device="cpu")
    return lambda texts: model.encode(texts, show_progress_bar=False)


class States(torch.nn.Module):
    """The model with its inputs by place, as the exporter wants them."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        found = self.model(**dict(zip(self.names, given, strict=True)))
        states: torch.Tensor = found.last_hidden_state
        return states


def ours(place: Path, int8: bool, compile: bool) -> Embed:
    engine = Engine.load(place, int8=int8, compile=compile)
    reuse_freed_memory()  # as the commands do
    return engine.embed


def onnx_int8(place: Path, folder: Path) -> Embed:
    """transformers' BERT through onnxruntime with dynamic 8 bits, sorted by length, by 32."""
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(place)
    model = AutoModel.from_pretrained(place, attn_implementation="eager").eval()
    given = tokenizer(["a short text", "a second one"], return_tensors="pt", padding=True)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch", 1: "length"} for name in names}
    torch.onnx.export(
        States(model, names), tuple(given[name] for name in names), folder / "plain.onnx",
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
        found = np.empty((len(texts), 384), dtype=np.float32)
        for start in range(0, len(order), 32):
            batch = order[start : start + 32]
            given = tokenizer(
                [texts[i] for i in batch], padding=True, truncation=True, max_length=256,
                return_tensors="np",
            )  # fmt: skip
            (states,) = session.run(None, {name: given[name] for name in names})
            real = given["attention_mask"][:, :, None]
            mean = (states * real).sum(axis=1) / real.sum(axis=1)
            found[batch] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return found

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
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    place, before = minilm(), machine()
    peers = {
        "sentence-transformers": Peer(sentence_transformers, place),
        "qkv": Peer(ours, place, False, False),
        "qkv --compile": Peer(ours, place, False, True),
        "qkv int8 --compile": Peer(ours, place, True, True),
    }
    if int8_supported():  # else that would be float32
        peers["qkv int8"] = Peer(ours, place, True, False)
    with tempfile.TemporaryDirectory() as folder:
        if all(map(importlib.util.find_spec, ("onnxruntime", "onnx", "onnxscript"))):
            peers["onnxruntime int8"] = Peer(onnx_int8, place, Path(folder))
        rows = measured(peers, Engine.load(place), asked)
    packages = ["sentence-transformers", "transformers"]
    packages += ["onnxruntime"] if "onnxruntime int8" in peers else []
    versions = {name: version(name) for name in packages}
    print(json.dumps({"bench": "embed_speed", **rows, **before, "versions": versions}))


def measured(peers: dict[str, Peer], engine: Engine, asked: argparse.Namespace) -> dict[str, Any]:
    short = captions(asked.data, asked.captions)
    long = mixed(asked.data, asked.mixed, engine)
    exact = peers["sentence-transformers"].answer(short)
    vectors = {name: peer.answer(short) for name, peer in peers.items()}
    near = {name: (found * exact).sum(axis=1) for name, found in vectors.items()}
    print("short captions, texts a second")
    rates = by_turns(
        {name: partial(peer.seconds, short) for name, peer in peers.items()}, len(short), asked.runs
    )
    table(rates, "texts/s", "sentence-transformers")
    print("texts of 8 to 256 tokens, texts a second")
    longer = by_turns(
        {name: partial(peer.seconds, long) for name, peer in peers.items()}, len(long), asked.runs
    )
    table(longer, "texts/s", "sentence-transformers")
    quality = {name: sts(peer, asked.data) for name, peer in peers.items()}
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
        "runs": asked.runs,
    }


if __name__ == "__main__":
    main()
