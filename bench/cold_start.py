"""How soon a cold process gives its first answer: a vector, or 20 tokens, beside transformers.

    python bench/cold_start.py PATH/TO/stories15M

Each run is a process of its own, timed from its start until it has printed its answer: Python,
imports, weights and the answer. The peers are transformers' pipelines. Interleaved; medians.
Prints a table and one JSON line.
"""

import argparse
import json
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

from interleaved import interleave
from minilm import minilm

from machine import machine

CODE = {
    ("embed", "qkv"): """
import sys, qkv
vector = qkv.load(sys.argv[1]).embed(["a dog runs over the grass"])[0]
assert len(vector) == 384
print(vector[0], flush=True)
""",
    ("embed", "transformers"): """
import sys, warnings
warnings.simplefilter("ignore")
from transformers import pipeline
states = pipeline("feature-extraction", model=sys.argv[1])("a dog runs over the grass")[0]
vector = [sum(column) / len(states) for column in zip(*states)]
assert len(vector) == 384
print(vector[0], flush=True)
""",
    ("generate", "qkv"): """
import sys, qkv
model = qkv.load(sys.argv[1])
from qkv.engine.generate import GREEDY
answer = model.generate("Once upon a time", max_tokens=20, sampling=GREEDY)
assert len(answer.finish().tokens) == 20
print(repr(answer.text), flush=True)
""",
    ("generate", "transformers"): """
import sys, warnings
warnings.simplefilter("ignore")
from transformers import pipeline
write = pipeline("text-generation", model=sys.argv[1])
text = write("Once upon a time", max_new_tokens=20, do_sample=False)[0]["generated_text"]
assert text.startswith("Once upon a time")
print(repr(text), flush=True)
""",
}


def first_answer(code: str, model_dir: Path) -> float:
    """How many seconds it takes until the code has printed a line."""
    start = time.perf_counter()
    command = [sys.executable, "-c", code, str(model_dir)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        line, elapsed = process.stdout.readline(), time.perf_counter() - start
    assert line
    assert process.returncode == 0
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    before, model_dirs = machine(), {"embed": minilm(), "generate": args.model}
    seconds: dict[str, dict[str, float]] = {}
    for work, model_dir in model_dirs.items():
        starts = {
            name: partial(first_answer, code, model_dir)
            for (what, name), code in CODE.items()
            if what == work
        }
        seconds[work] = {n: 1 / rate for n, rate in interleave(starts, 1, args.runs).items()}
        for name, elapsed in seconds[work].items():
            ratio = elapsed / seconds[work]["transformers"]
            print(f"{work:<10} {name:<14} {elapsed:6.2f} s   {ratio:5.2f} × transformers")
    ratios = {f"ratio_{w}": s["qkv"] / s["transformers"] for w, s in seconds.items()}
    versions = {"transformers": version("transformers")}
    result = {"seconds": seconds, **ratios, "runs": args.runs, **before, "versions": versions}
    print(json.dumps({"bench": "cold_start", **result}))


if __name__ == "__main__":
    main()
