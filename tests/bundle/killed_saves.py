"""A program that kills its own children while they save, and says what each one left behind.

    python killed_saves.py DIRECTORY

It prints one JSON object: for a kill before every step of one save, and for kills at random
moments of many saves, which model was on disk afterwards, and what lay beside it.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from qkv.bundle import Bundle
from qkv.bundle.manifest import recover, verify
from qkv.model import Model, build, preset

CHANGES = {"open", "os.mkdir", "os.chmod", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
RANDOM_KILLS = 8


def main(place: Path) -> None:
    torch.set_num_threads(1)
    old, new = (build(preset("language-tiny"), seed=seed) for seed in (1, 2))
    steps = list(kill_before_every_step(place / "steps" / "model", old, new))
    moments = list(kill_at_random_moments(place / "moments" / "model", old, new))
    print(json.dumps({"steps": steps, "moments": moments}))


def kill_before_every_step(target: Path, old: Model, new: Model):
    for step in range(1, 1000):
        Bundle(old).save(target)
        if not in_child(lambda step=step: save_until(step, new, target)):
            return
        yield look(target, old, new)


def kill_at_random_moments(target: Path, old: Model, new: Model):
    chance = random.Random(7)
    Bundle(old).save(target)
    for _ in range(RANDOM_KILLS):
        in_child(lambda: save_for_ever(target, old, new), after=chance.uniform(0.01, 0.06))
        yield look(target, old, new)


def in_child(work: Callable[[], None], after: float | None = None) -> bool:
    """Whether a child that does this work died of a kill: its own, or ours after so long."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and status != 0:
        raise SystemExit("a child could not save")
    return os.WIFSIGNALED(status)


def save_until(step: int, model: Model, target: Path) -> None:
    left = step

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    Bundle(model).save(target)


def save_for_ever(target: Path, old: Model, new: Model) -> None:
    while True:
        Bundle(new).save(target)
        Bundle(old).save(target)


def look(target: Path, old: Model, new: Model) -> dict[str, object]:
    """Which model is on disk once recovered, and what lies beside it after the next save."""
    aside = target.with_name(f".{target.name}.old")
    verify(target if target.exists() else aside)  # whole before anything is put right
    recover(target)
    found = weights(Bundle.load(target).model)
    names = [name for name, model in (("old", old), ("new", new)) if same(found, weights(model))]
    Bundle(old).save(target)
    beside = sorted(path.name for path in target.parent.iterdir() if path != target)
    return {"found": names, "beside": beside}


def weights(model: Model) -> dict[str, torch.Tensor]:
    return model.state_dict()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
