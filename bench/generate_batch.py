"""64 prompts with answers of 8 to 256 tokens: together as they come and go, or otherwise.

    python bench/generate_batch.py PATH/TO/stories15M

Next to continuous batching: the same engine one prompt after the other; as a static batch that is
as long as its longest answer, each with and without compiled loops; and transformers in one padded
batch. All write the same greedy tokens. Interleaved, each in its own process; medians. Prints a
table and one JSON line.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from interleaved import Peer, interleave, table

from machine import machine
from qkv.engine.engine import Engine
from qkv.engine.generate import GREEDY, Request, Scheduler, encode_prompt
from qkv.machine.resources import reuse_freed_memory

OPENINGS = [
    "Once upon a time", "One day", "The little dog", "Tom and Mia", "In the big forest",
    "There was a girl named Lily", "The sun was hot", "A small bird",
]  # fmt: skip
Answers = list[list[int]]
Write = Callable[[], Answers]


def ours(
    model_dir: Path, count: int, way: Callable[[Engine, list[Request]], Answers], compile: bool
) -> Write:
    engine = Engine.load(model_dir, compile=compile)
    reuse_freed_memory()  # as the commands do
    batch = requests(engine, count)
    return lambda: way(engine, batch)


def requests(engine: Engine, count: int) -> list[Request]:
    """Answers of 8 to 256 tokens, as far as the model reads; an early end does not count."""
    lengths = np.random.default_rng(0).integers(8, 257, count).tolist()
    made = []
    for i, length in enumerate(lengths):
        ids = tuple(encode_prompt(engine.tokenizer, OPENINGS[i % len(OPENINGS)]))
        made.append(Request(ids, max_tokens=min(length, 256 - len(ids)), sampling=GREEDY))
    return made


def continuous(engine: Engine, batch: list[Request]) -> Answers:
    batch = Scheduler(engine.optimized, engine.tokenizer.vocab_size)
    running = {id(batch.add(request)): i for i, request in enumerate(batch)}
    outputs: Answers = [[] for _ in batch]
    while not batch.idle:
        for event in batch.step():
            assert event.token is not None
            outputs[running[id(event.sequence)]].append(event.token.id)
    return outputs


def one_by_one(engine: Engine, batch: list[Request]) -> Answers:
    return [continuous(engine, [request])[0] for request in batch]


def static(engine: Engine, batch: list[Request]) -> Answers:
    """All begin together and all go on until the longest has ended."""
    longest = max(request.max_tokens for request in batch)
    even = [
        Request(r.ids, max_tokens=min(longest, 256 - len(r.ids)), sampling=GREEDY) for r in batch
    ]
    outputs = continuous(engine, even)
    return [ids[: r.max_tokens] for ids, r in zip(outputs, batch, strict=True)]


def transformers(model_dir: Path, count: int) -> Write:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    batch = requests(Engine.load(model_dir), count)
    width = max(len(r.ids) for r in batch)
    ids = torch.tensor([[0] * (width - len(r.ids)) + list(r.ids) for r in batch])
    seen = torch.tensor([[0] * (width - len(r.ids)) + [1] * len(r.ids) for r in batch])
    longest = max(r.max_tokens for r in batch)

    def write() -> Answers:
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids, attention_mask=seen, max_new_tokens=longest,
                min_new_tokens=longest, do_sample=False, pad_token_id=0,
            )  # fmt: skip
        return [row[: r.max_tokens] for row, r in zip(out[:, width:].tolist(), batch, strict=True)]

    return write


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=64)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    before = machine()
    batch = requests(Engine.load(args.model), args.prompts)
    ways = {
        "qkv, continuous": continuous, "qkv, static": static, "qkv, one by one": one_by_one
    }  # fmt: skip
    peers = {
        name + " --compile" * compile: Peer(ours, args.model, args.prompts, way, compile)
        for compile in (False, True)
        for name, way in ways.items()
    }
    peers["transformers"] = Peer(transformers, args.model, args.prompts)
    outputs = {name: peer.answer() for name, peer in peers.items()}
    tokens = sum(r.max_tokens for r in batch)
    rates = interleave({n: peer.seconds for n, peer in peers.items()}, tokens, args.runs)
    table(rates, "tokens/s", "transformers")
    agree = {
        name: sum(a == b for a, b in zip(answers, outputs["qkv, one by one"], strict=True))
        for name, answers in outputs.items()
    }
    for name, count in agree.items():
        print(f"{name:<28} {count} of {len(batch)} answers are those written one by one")
    result = {
        "bench": "generate_batch", "tokens": tokens, "tokens_per_second": rates,
        "equal_answers": agree, "runs": args.runs, **before,
        "versions": {"transformers": version("transformers")},
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
