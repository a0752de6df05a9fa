"""Whether memory stays flat while a million short texts are embedded into a file.

    python bench/embed_memory.py --texts 1000000

The texts go through `qkv embed` on standard input into a .npy file, with a tiny encoder made for
the purpose, so that the work of a million texts takes minutes. The memory of the program is read
as it goes. Prints a table and one JSON line.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from machine import machine
from qkv.bundle import Bundle
from qkv.model import Embedding, EncoderOnly, MultiHead, ReLU, Sinusoidal, Stack, TextVector, build
from qkv.text import Tokenizer

WORDS = ["red", "green", "old", "new", "small", "large", "dog", "cat", "bird", "house", "river"]


def tiny(model_dir: Path) -> None:
    tokenizer = Tokenizer.train("wordpiece", WORDS, 200)
    stack = Stack(
        layers=1, width=32, attention=MultiHead(heads=2), feed_forward=ReLU(width=64),
        position=Sinusoidal(),
    )  # fmt: skip
    table = Embedding(vocabulary=tokenizer.vocab_size)
    config = EncoderOnly(length=64, embedding=table, encoder=stack, output=TextVector())
    Bundle(build(config), tokenizer).save(model_dir)


def resident(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=1_000_000)
    args = parser.parse_args()
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        model_dir, out = Path(folder) / "tiny", Path(folder) / "vectors.npy"
        tiny(model_dir)
        program = [sys.executable, "-m", "qkv", "embed", str(model_dir), "-o", str(out)]
        run = subprocess.Popen(program, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        threading.Thread(target=feed, args=(run, args.texts), daemon=True).start()
        start, seen = time.perf_counter(), []
        while run.poll() is None:
            seen.append((time.perf_counter() - start, resident(run.pid)))
            time.sleep(0.5)
        took = time.perf_counter() - start
        assert run.returncode == 0
        rows = np.load(out, mmap_mode="r").shape[0]
    assert rows == args.texts
    quarter = [size for at, size in seen if at > took / 4][:-1]
    first, most = quarter[0], max(quarter)
    print(f"{rows:,} texts in {took:.0f} s, {rows / took:,.0f} texts/s")
    after = f"the most after it {most / 2**20:,.0f} MB"
    print(f"memory after a quarter {first / 2**20:,.0f} MB, {after}")
    result = {
        "bench": "embed_memory", "texts": rows, "seconds": took, "texts_per_second": rows / took,
        "bytes_after_a_quarter": first, "most_bytes": most, "growth": most / first, **before,
    }  # fmt: skip
    print(json.dumps(result))


def feed(run: "subprocess.Popen[bytes]", count: int) -> None:
    draws = np.random.default_rng(0)
    assert run.stdin is not None
    for start in range(0, count, 10_000):
        rows = draws.integers(0, len(WORDS), (min(10_000, count - start), 6))
        run.stdin.write("".join(" ".join(WORDS[i] for i in row) + "\n" for row in rows).encode())
    run.stdin.close()


if __name__ == "__main__":
    main()
