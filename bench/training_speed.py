"""How much of the machine's matrix speed a whole training step reaches, ours beside peers.

    python bench/training_speed.py

A GPT of 10.6 M parameters (6 layers, 6 heads, width 384, context 256, vocabulary 65), 16 windows a
step, AdamW, clipping. The FLOPs are those of the matrix products, counted once for all; the share
is of a float32 product of 1024 × 1024 matrices in the same run. All run by turns; medians. Prints
a table and one JSON line.
"""

import json
import statistics
import time
from collections.abc import Callable

import torch

from machine import machine, matmul_gflops
from qkv.machine.resources import reuse_freed_memory
from qkv.model import (
    GELU,
    DecoderOnly,
    Embedding,
    LayerNorm,
    Learned,
    MultiHead,
    Stack,
    build,
    cost,
)
from qkv.training.fused_model import compile_for_training
from qkv.training.optimizer import AdamW, Constant
from qkv.training.tasks.language import LanguageTask
from qkv.training.tasks.text_stream import Windows
from qkv.training.trainer import Trainer

ROWS, LENGTH, VOCABULARY, WIDTH, LAYERS, HEADS = 16, 256, 65, 384, 6, 6
REPEATS = 7

CONFIG = DecoderOnly(
    length=LENGTH,
    embedding=Embedding(vocabulary=VOCABULARY),
    decoder=Stack(
        layers=LAYERS,
        width=WIDTH,
        attention=MultiHead(heads=HEADS, bias=False, output_bias=False),
        feed_forward=GELU(width=4 * WIDTH, bias=False, tanh=True),
        position=Learned(),
        norm=LayerNorm(bias=False),
    ),
)


def ours(compiled: bool) -> Callable[[], None]:
    model = build(CONFIG)
    optimizers = AdamW().build(model)
    learner = compile_for_training(model, optimizers) if compiled else model
    trainer = Trainer(learner, LanguageTask().loss, optimizers, Constant(), 10**9)
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH + 1))
    batch = Windows(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), None, None)
    steps = trainer.steps([batch] for _ in iter(int, 1))
    return lambda: (next(steps), None)[1]


def transformers_gpt2() -> Callable[[], None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH))

    def step() -> None:
        model(ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    reuse_freed_memory()
    peers: dict[str, Callable[[], None]] = {"qkv": ours(False), "qkv --compile": ours(True)}
    try:
        peers["transformers GPT-2"] = transformers_gpt2()
    except ImportError:
        print("transformers is not installed: pip install 'qkv[bench]'")
    times: dict[str, list[float]] = {name: [] for name in peers}
    speeds = []
    for step in peers.values():
        step()  # warm up, and compile
        step()
    for _ in range(REPEATS):
        speeds.append(matmul_gflops(seconds=0.03))
        for name, step in peers.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    flops = cost(CONFIG, LENGTH).training_flops * ROWS * LENGTH
    speed = statistics.median(speeds)
    rows = {}
    for name, spent in times.items():
        seconds = statistics.median(spent)
        rows[name] = {
            "seconds_a_step": round(seconds, 3),
            "tokens_a_second": round(ROWS * LENGTH / seconds),
            "gflops": round(flops / seconds / 1e9),
            "share": round(flops / seconds / 1e9 / speed, 3),
        }
        r = rows[name]
        print(
            f"{name:20} {r['tokens_a_second']:6,} tokens/s {r['gflops']:5} GFLOP/s {r['share']:6}"
        )
    print(json.dumps({"bench": "training_speed", **rows, **machine()}))


if __name__ == "__main__":
    main()
