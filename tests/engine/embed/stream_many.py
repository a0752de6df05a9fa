"""Embeds many short texts into files; says how much more memory that took than a few."""

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tests.engine.embed.tiny_encoders import encoder, tokenizer

from qkv.engine.embed import Embedder, embed_to_file

WIDTH = 84


def main(place: Path) -> None:
    torch.set_num_threads(1)
    embed = Embedder(encoder(width=WIDTH), tokenizer("characters"), raw=True)
    said = {}
    for name, count in (("a.npy", 100_000), ("a.parquet", 40_000)):
        embed_to_file(embed, texts(3_000), place / name, {})
        before = peak()
        rows = embed_to_file(embed, texts(count), place / name, {}, force=True).rows
        said[name] = {"rows": rows, "bytes": rows * WIDTH * 4, "grown": peak() - before}
    print(json.dumps(said))


def texts(count: int) -> Iterator[str]:
    return ("cat"[i % 3] for i in range(count))


def peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main(Path(sys.argv[1]))
