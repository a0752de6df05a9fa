"""One training as the command line does it, with its table of evaluations."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from qkv.bundle import Bundle
from qkv.machine.resources import reuse_freed_memory
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.run import Evaluation, Run


def learn(
    args: TrainArgs,
    minutes: float | None = None,
    then: Callable[[Bundle], Any] | None = None,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Train, and give what `then` says of the finished bundle beside the run's own figures.

    The bundle is thrown away unless there is a place to `keep` it.
    """
    reuse_freed_memory()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) if keep is None else keep
        directory.mkdir(exist_ok=True)
        prepared = prepare(args)
        run = Run(prepared, directory, torch.device("cpu"))
        if minutes is not None:
            run.fit_to_minutes(minutes)
        (directory / "recipe.toml").write_text(run.recipe.toml(), encoding="utf-8")
        prepared.tokenizer.save(directory / "tokenizer.json")
        print(f"{run.recipe.model.parameters():,} parameters, {run.recipe.steps:,} steps")
        print(f"{'step':>7} {'seconds':>8}  held out")
        for event in run.events():
            if isinstance(event, Evaluation):
                scores = "  ".join(f"{name} {value:.4f}" for name, value in event.scores.items())
                spent = time.perf_counter() - started
                print(f"{event.number:7d} {spent:8.1f}  {scores}", flush=True)
        judged = run.finish()
        trained = time.perf_counter() - started
        return {
            "parameters": run.recipe.model.parameters(),
            "steps": run.progress.step,
            "tokens": run.progress.tokens,
            "seconds_of_steps": round(run.progress.seconds, 1),
            "seconds": round(trained, 1),
            "held_out": {name: round(value, 4) for name, value in judged.scores.items()},
            "then": None if then is None else then(Bundle.load(directory)),
        }
