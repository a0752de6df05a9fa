"""A program that kills `qkv train` again and again, resumes it, and says what came out.

    python killed_runs.py DIRECTORY

Each run is a child that was forked once everything was imported, so that a kill costs no time. It
prints one JSON object: how far each killed run was, how many were finished in spite of it, what of
theirs is not what the run that nobody killed has left, and which left a model that does not load.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from tests.training.tiny_runs import args_for, data_for, trained

from qkv.bundle import MANIFEST, Bundle
from qkv.cli.app import main as qkv_main
from qkv.errors import QkvError
from qkv.training.run_directory import CHECKPOINTS, METRICS, RECIPE

KILLS = 20
OPTIONS = "--size tiny --steps 60 --context 16 --batch 64 --vocabulary 300 --seed 5 --device cpu"
SETTINGS = ("model.width=16", "model.layers=1", "model.dropout=0.1", "ema=0.9")
MORE = ("accumulate=2", "evaluate_every=6")


def main(place: Path) -> None:
    torch.set_num_threads(1)
    data = data_for("language", place)
    (book,) = data.files
    trained(place / "warm", args_for("language", data))  # so that all is imported
    begin = time.monotonic()
    train(book, place / "whole", after=None)
    lasts = time.monotonic() - begin
    chance, kills, finished, different, unusable = random.Random(1), [], 0, [], []
    while len(kills) < KILLS or finished == 0:
        target = place / f"broken-{finished}"
        after = chance.uniform(0.0, 0.6 * lasts) if len(kills) < KILLS else None
        if train(book, target, after):
            kills.append(reached(target))
            unusable += damaged(target)
        if (target / MANIFEST).exists():  # also if it was killed after its last deed
            finished += 1
            different += compare(target, place / "whole")
    result = {"kills": kills, "finished": finished, "different": different, "unusable": unusable}
    print(json.dumps(result))


def train(book: str, target: Path, after: float | None) -> bool:
    """Whether that run, started or resumed, was killed after so long before it ended."""
    aside = target.with_name(f".{target.name}.old")
    if (target / RECIPE).exists() or aside.exists():
        arguments = ["train", "language", "-o", str(target), "--resume", "--device", "cpu"]
    else:
        shutil.rmtree(target, ignore_errors=True)  # killed before there was a run
        settings = [word for s in (*SETTINGS, *MORE) for word in ("--set", s)]
        arguments = ["train", "language", book, "-o", str(target), *OPTIONS.split(), *settings]
    child = os.fork()
    if child == 0:
        work(arguments)
    until = time.monotonic() + (300 if after is None else after)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status != 0:
                raise SystemExit(f"a run ended with {status}, see {target}")
            return False
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def work(arguments: list[str]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    sys.argv = ["qkv", *arguments]
    try:
        qkv_main()
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    os._exit(1)


def reached(target: Path) -> str:
    """The newest checkpoint of a run that was killed."""
    return max((path.name for path in (target / CHECKPOINTS).glob("step-*")), default="none")


def damaged(target: Path) -> list[str]:
    """Why the model of a killed run cannot be loaded, if it had saved anything."""
    if reached(target) == "none":
        return []
    try:
        Bundle.load(target)
    except QkvError as error:
        return [str(error)]
    return []


def compare(one: Path, other: Path) -> list[str]:
    files = ["model.safetensors", "config.json", "tokenizer.json"]
    different = [name for name in files if (one / name).read_bytes() != (other / name).read_bytes()]
    return different + ([METRICS] if measured(one) != measured(other) else [])


def measured(place: Path) -> list[dict[str, object]]:
    """Every line of the metrics without the times."""
    lines = [json.loads(line) for line in (place / METRICS).read_text().split("\n")[:-1]]
    lines[-1]["summary"].pop("seconds")
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
