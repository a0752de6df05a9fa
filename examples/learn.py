"""What the training examples share: go through a run, and say how far it is."""

from pathlib import Path

import torch

from qkv.training.plan import TrainArgs, prepare
from qkv.training.recipe import Data
from qkv.training.run import Run, begin
from qkv.training.trainer import Step


def learn(job: str, file: Path, place: Path, steps: int, **options: object) -> None:
    """Train a tiny model on the file and leave it in the directory, as `qkv train` does."""
    torch.set_num_threads(1)  # a model this small is slower on more
    settings = {"evaluate_every": steps, **options.pop("settings", {})}
    data = Data(files=(str(file),))
    args = TrainArgs(job, data, size="tiny", steps=steps, settings=settings, **options)
    run = Run(prepare(args), place, torch.device("cpu"))
    begin(run)
    print(f"{run.recipe.model.parameters():,} parameters, {steps} steps")
    for event in run.events():
        if isinstance(event, Step) and event.number % (steps // 4) == 0:
            print(f"step {event.number}: loss {event.loss:.3f}")
    _, judged = run.finish()
    for name, value in judged.scores.items():
        beside = judged.baseline.get(name)
        print(f"{name}: {value:.3f}" + (f" ({judged.baseline_is}: {beside:.3f})" if beside else ""))
