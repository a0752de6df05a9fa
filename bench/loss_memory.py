"""How much memory the loss of a large vocabulary takes, ours beside torch's cross-entropy.

    python bench/loss_memory.py

8,192 tokens, width 512, vocabulary 32,000: the height of memory, above what the inputs take, of
one loss with its gradients. Each is measured in a process of its own. Prints a table and one JSON
line.
"""

import json
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

from machine import machine
from qkv.model.output import LazyLogits
from qkv.training.loss import fused_cross_entropy

TOKENS, WIDTH, VOCABULARY = 8192, 512, 32_000


def measure(name: str) -> dict[str, float]:
    """Bytes above the inputs, and seconds, of one loss and its gradients."""
    torch.manual_seed(0)
    states = torch.randn(TOKENS, WIDTH, requires_grad=True)
    table = (torch.randn(VOCABULARY, WIDTH) * 0.02).requires_grad_()
    targets = torch.randint(VOCABULARY, (TOKENS,))
    (states[:4] @ table.T).sum().backward()  # the gradients and the library's buffers are there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    if name == "ours":
        loss = fused_cross_entropy(LazyLogits(states, table, None, None), targets, smoothing=0.1)
    else:
        loss = F.cross_entropy(states @ table.T, targets, reduction="sum", label_smoothing=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    seconds = time.perf_counter() - start
    height = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"bytes": 1024 * (height - before), "seconds": round(seconds, 2), "loss": loss.item()}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    results: dict[str, dict[str, float]] = {}
    for name in ("ours", "torch"):
        process = subprocess.run([sys.executable, __file__, name], capture_output=True, check=True)
        results[name] = json.loads(process.stdout)
        print(f"{name:>6} {results[name]['bytes'] / 1e6:8.0f} MB {results[name]['seconds']:7.2f} s")
    ratio = round(results["ours"]["bytes"] / results["torch"]["bytes"], 3)
    print(f"ours takes {ratio} of it")
    print(json.dumps({"bench": "loss_memory", "share": ratio, "measured": results, **machine()}))


if __name__ == "__main__":
    main()
