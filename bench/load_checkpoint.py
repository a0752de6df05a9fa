"""How soon a public checkpoint is ready to answer, in a fresh process, beside transformers.

    python bench/load_checkpoint.py PATH/TO/stories15M

Each run is a process of its own: import, tokenizer, weights, and the scores of one short text.
The two are interleaved. Memory is what tokenizer, weights and answer add to the highest that was in
use after the imports, against the size of the weights. Prints a table and one JSON line.
"""

import argparse
import json
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from machine import machine

OURS = """
import sys, time
start = time.perf_counter()
import torch
from qkv.bundle import Bundle
before = peak()
bundle = Bundle.load(sys.argv[1])
ids = bundle.tokenizer.add_special_tokens(bundle.tokenizer.encode("Once upon a time"))
with torch.inference_mode():
    scores = bundle.model(torch.tensor([ids]))
"""
THEIRS = """
import sys, time, warnings
warnings.simplefilter("ignore")
start = time.perf_counter()
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
before = peak()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
ids = tokenizer("Once upon a time").input_ids
with torch.inference_mode():
    scores = model(torch.tensor([ids])).logits
"""
PEAK = """
def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
"""
TOLD = """
took, loaded = time.perf_counter() - start, peak() - before
import json
last = scores[0, -1, :8].tolist()
print(json.dumps({"seconds": took, "bytes": loaded, "ids": ids, "last": last}))
"""


def run(code: str, model: Path) -> dict[str, object]:
    whole = PEAK + code + TOLD
    result = subprocess.run(
        [sys.executable, "-c", whole, str(model)], check=True, capture_output=True, text=True
    )
    results: dict[str, object] = json.loads(result.stdout.strip().splitlines()[-1])
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    results: dict[str, list[dict[str, object]]] = {"qkv": [], "transformers": []}
    for number in range(args.runs + 1):  # the first warms the disk cache
        for name, code in (("qkv", OURS), ("transformers", THEIRS)):
            result = run(code, args.model)
            if number:
                results[name].append(result)
    one, other = results["qkv"][0], results["transformers"][0]
    assert one["ids"] == other["ids"], "the two tokenizers differ"
    gap = max(abs(a - b) for a, b in zip(one["last"], other["last"], strict=True))  # type: ignore[call-overload]
    size = sum(path.stat().st_size for path in args.model.glob("*.safetensors"))
    seconds = {n: statistics.median(t["seconds"] for t in result) for n, result in results.items()}  # type: ignore[type-var]
    memory = {n: statistics.median(t["bytes"] for t in result) for n, result in results.items()}  # type: ignore[type-var]
    for name in results:
        print(f"{name:<14} {seconds[name]:6.2f} s  {memory[name] / size:5.2f} × the weights")  # type: ignore[operator]
    result = {
        "bench": "load_checkpoint",
        "model": args.model.name,
        "runs": args.runs,
        "seconds": seconds,
        "ratio": round(seconds["qkv"] / seconds["transformers"], 3),  # type: ignore[operator]
        "memory_over_weights": {n: round(m / size, 3) for n, m in memory.items()},  # type: ignore[operator]
        "largest_difference_of_scores": gap,
        "transformers": version("transformers"),
        **machine(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
