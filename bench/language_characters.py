"""How well 0.8 M parameters learn Shakespeare's letters in 2,000 steps of 768 tokens.

    python bench/language_characters.py PATH/TO/tinyshakespeare/input.txt

The first 90 % of the text are learnt from; the loss is over all of the last 10 %, each letter
predicted once from at most 63 before it. A second, short run shows how soon the loss of nanoGPT's
own recipe for a CPU is reached (1.909 after 75 s of steps, measured on two such cores). Prints a
table, and one JSON line with the machine's float32 matrix speed beside it.
"""

import json
import platform
import sys
import tempfile
import time
from pathlib import Path

import torch

from qkv.model import cost
from qkv.train.language import Evaluated, Run
from qkv.train.plan import Wish, plan_language


def matrix_speed(size: int = 1024, times: int = 20) -> float:
    """GFLOP/s of a float32 matrix product, the best of many."""
    a, b = torch.randn(2, size, size)
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9


def learn(path: Path, steps: int) -> dict[str, float]:
    """One run of that many steps, from the first to the last."""
    documents = [path.read_text("utf-8")]
    wish = Wish("small", steps=steps, tokens="characters", context=64, batch=12)
    recipe, tokenizer = plan_language(wish, documents, [])
    with tempfile.TemporaryDirectory() as folder:
        run = Run(recipe, documents, tokenizer, Path(folder), torch.device("cpu"))
        for event in run.events():
            if isinstance(event, Evaluated):
                seconds, loss = run.progress.seconds, event.loss
                print(f"{event.number:6d} {seconds:8.1f} {loss:9.4f}", flush=True)
        flops = cost(recipe.model, 64).training_flops * run.progress.tokens
        return {
            "parameters": recipe.model.parameters(),
            "steps": steps,
            "tokens": run.progress.tokens,
            "held_out_loss": round(run.progress.best or 0.0, 4),
            "seconds_of_steps": round(run.progress.seconds, 1),
            "gflops": round(flops / run.progress.seconds / 1e9),
        }


def main(path: Path) -> None:
    speed = matrix_speed()
    print(f"{'step':>6} {'seconds':>8} {'held out':>9}")
    result = {
        "bench": "language_characters",
        "whole": learn(path, 2000),
        "short": learn(path, 400),  # how soon the reference's loss can be had
        "reference": {"held_out_loss": 1.909, "seconds_of_steps": 75},  # nanoGPT's CPU recipe
        "matrix_gflops": round(speed),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
