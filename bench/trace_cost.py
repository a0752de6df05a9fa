"""What it costs to look inside: nothing while nobody looks, little for what is asked.

    python bench/trace_cost.py

A decoder of 12 layers and 12 heads, width 768. Memory: the height of a plain forward pass over
4,096 tokens, and of one that also keeps one query's attention in every layer and head, each in a
process of its own. Time, 512 tokens, interleaved: a plain pass; a plain pass after traces were made
(no hook is left); a pass that keeps one layer's attention weights. Prints a table and one JSON
line.
"""

import json
import resource
import subprocess
import sys

import torch
from interleaved import interleave, timed

from machine import machine
from qkv.interpret.trace import TokenizedInput, capture_trace
from qkv.model import (
    GELU,
    Decoder,
    DecoderOnly,
    Embedding,
    Learned,
    MultiHead,
    Stack,
    build,
)

LAYERS, HEADS, WIDTH, VOCABULARY = 12, 12, 768, 1000
LONG, SHORT, RUNS = 4096, 512, 7


def model() -> Decoder:
    """A small vocabulary, so that the height is in the layers and not in the scores of tokens."""
    stack = Stack(
        layers=LAYERS,
        width=WIDTH,
        attention=MultiHead(heads=HEADS),
        feed_forward=GELU(width=4 * WIDTH),
        position=Learned(),
    )
    result = build(
        DecoderOnly(length=LONG, embedding=Embedding(vocabulary=VOCABULARY), decoder=stack)
    )
    assert isinstance(result, Decoder)
    return result.eval()


def height(how: str) -> dict[str, float]:
    """Megabytes at the height of one pass over the long text."""
    net, ids = model(), [i * 7 % VOCABULARY for i in range(LONG)]
    with torch.no_grad():
        if how == "plain":
            net(torch.tensor([ids]))
            captured = 0
        else:
            trace = capture_trace(
                net, TokenizedInput.from_ids(text=ids), ["*.attention.weights"], rows=[-1]
            )
            captured = sum(value.numel() * value.element_size() for value in trace.values())
            assert len(trace) == LAYERS
    top = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"megabytes": top / 1024, "kept_megabytes": captured / 2**20}


def seconds() -> dict[str, float]:
    """Passes a second over the short text, interleaved."""
    fresh, looked_into = model(), model()
    looked_into.load_state_dict(fresh.state_dict())
    ids = [i * 7 % VOCABULARY for i in range(SHORT)]
    ids_tensor, reading = torch.tensor([ids]), TokenizedInput.from_ids(text=ids)
    capture_trace(looked_into, reading, ["*.attention.weights"])
    with torch.no_grad():
        return interleave(
            {
                "plain": timed(lambda: fresh(ids_tensor)),
                "after traces": timed(lambda: looked_into(ids_tensor)),
                "one layer traced": timed(
                    lambda: capture_trace(looked_into, reading, ["decoder.5.attention.weights"])
                ),
            },
            amount=1,
            runs=RUNS,
        )


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(height(sys.argv[1])))
        return
    heights: dict[str, dict[str, float]] = {}
    for how in ("plain", "one row"):
        ran = subprocess.run([sys.executable, __file__, how], capture_output=True, check=True)
        heights[how] = json.loads(ran.stdout)
        print(f"{how:>8} {heights[how]['megabytes']:8.0f} MB")
    added = heights["one row"]["megabytes"] - heights["plain"]["megabytes"]
    print(f"one query of {LAYERS} × {HEADS} heads at {LONG:,} tokens adds {added:.0f} MB")
    rates = seconds()
    times = {name: rates["plain"] / rate for name, rate in rates.items()}
    for name, ratio in times.items():
        print(f"{name:<18} {1000 / rates[name]:7.0f} ms   {ratio:5.2f} × plain")
    result = {
        "bench": "trace_cost",
        "added_megabytes": round(added, 1),
        "kept_megabytes": round(heights["one row"]["kept_megabytes"], 2),
        "ratio_after_traces": round(times["after traces"], 3),
        "ratio_one_layer": round(times["one layer traced"], 3),
    }
    print(json.dumps(result | machine()))


if __name__ == "__main__":
    main()
