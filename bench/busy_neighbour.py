"""Threads next to other programs: default settings against every fixed number of threads.

    python bench/busy_neighbour.py [--neighbours 0 1 2] [--seconds 8] [--repeats 3]

A neighbour is a process that never waits (`yes > /dev/null`). Each measurement has a process of its
own, and the settings are interleaved; the table shows work per second as a fraction of the best
fixed number at that load. `before` is the default of the time when threads did not follow the load:
one per core.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from machine import machine

JOBS = ("train", "train --compile", "embed", "generate", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=JOBS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        job, threads, folder = args.worker
        print(work(job, threads, Path(folder), args.seconds))
        return
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for neighbours in args.neighbours:
            for job in args.jobs:
                rows.append(measure(job, neighbours, folder, args))
                print_row(rows[-1])
    result = {"bench": "busy_neighbour", "rows": rows, **machine()}
    print(json.dumps(result))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def prepare(folder: Path) -> None:
    """Small models of two families, trained for a few steps: their speed is what matters."""
    import qkv

    for job, size in (("language", "tiny"), ("classify", "tiny")):
        qkv.train(job, output=folder / job, steps=3, size=size, threads=1).finish()


def measure(job: str, neighbours: int, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Work per second by setting; the settings are interleaved, so that all meet the same load."""
    settings = [str(n + 1) for n in range(os.cpu_count() or 1)] + ["default"]
    speeds: dict[str, list[float]] = {setting: [] for setting in settings}
    processes = [subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) for _ in range(neighbours)]
    try:
        for _ in range(args.repeats):
            for setting in settings:
                speeds[setting].append(run_worker(job, setting, folder, args.seconds))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {
        "job": job,
        "neighbours": neighbours,
        "speeds": {setting: median(values) for setting, values in speeds.items()},
    }


def run_worker(job: str, setting: str, folder: Path, seconds: float) -> float:
    command = [sys.executable, __file__, "--seconds", str(seconds), "--worker", job, setting]
    result = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, check=True, timeout=600
    )
    return float(result.stdout.strip().split("\n")[-1])


def work(job: str, setting: str, folder: Path, seconds: float) -> float:
    """Units of work per second: tokens trained or written, texts embedded or classified."""
    import qkv
    from qkv.machine import watch_load

    watch_load()
    if setting != "default":
        qkv.set_threads(int(setting))
    if job.startswith("train"):
        return train_speed(seconds, compile="--compile" in job)
    if job == "generate":
        return generate_speed(qkv.load(folder / "language"), seconds)
    return texts_speed(job, folder, seconds)


def train_speed(seconds: float, compile: bool) -> float:
    import qkv

    with tempfile.TemporaryDirectory() as name:
        run = qkv.train(
            "classify", output=Path(name) / "run", steps=100_000, size="tiny", compile=compile
        )
        tokens = 0
        start = None
        for event in run:
            if not isinstance(event, qkv.Step):
                continue
            now = time.perf_counter()
            if start is None:  # the first step compiles and allocates
                start = now
                continue
            tokens += event.tokens
            if now - start > seconds:
                return tokens / (now - start)
    raise RuntimeError("the training ended before its time")


def generate_speed(model: Any, seconds: float) -> float:
    tokens = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in model.generate("The", max_tokens=100, seed=tokens):
            tokens += 1
    return tokens / (time.perf_counter() - start)


def texts_speed(job: str, folder: Path, seconds: float) -> float:
    import qkv
    from qkv.data import built_in

    texts = [example.text for example in built_in("classify")][:2000]
    model = qkv.load(folder / "classify")
    answer = model.classify if job == "evaluate" else model.embed
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        answer(texts)
        count += len(texts)
    return count / (time.perf_counter() - start)


def print_row(row: dict[str, Any]) -> None:
    speeds = dict(row["speeds"])
    default = speeds.pop("default")
    best = max(speeds.values())
    before = speeds[max(speeds, key=int)]
    fixed = ", ".join(f"{threads} threads {speed:,.0f}" for threads, speed in speeds.items())
    print(
        f"{row['job']:<16} {row['neighbours']} neighbours: default {default / best:.2f} of the "
        f"best fixed number, before {before / best:.2f} ({fixed}, default {default:,.0f})",
        flush=True,
    )


if __name__ == "__main__":
    main()
