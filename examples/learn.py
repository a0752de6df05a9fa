"""What the training examples share: train a tiny model, and print how it goes."""

from pathlib import Path

import qkv


def learn(job: str, file: Path, output: Path, steps: int, **options: object) -> None:
    """Train a tiny model on the file; the directory `output` becomes a bundle."""
    settings = {"evaluate_every": steps, **options.pop("settings", {})}
    run = qkv.train(
        job,
        file,
        output=output,
        size="tiny",
        steps=steps,
        threads=1,  # a model this small is slower on more
        settings=settings,
        **options,
    )
    print(f"{run.recipe.model.parameters():,} parameters, {steps} steps")
    for event in run:
        if isinstance(event, qkv.Step) and event.number % (steps // 4) == 0:
            print(f"step {event.number}: loss {event.loss:.3f}")
        if isinstance(event, qkv.Finished):
            print_result(event.result)


def print_result(result: object) -> None:
    for name, value in result.scores.items():
        line = f"{name}: {value:.3f}"
        if name in result.baseline:
            line += f" ({result.baseline_name}: {result.baseline[name]:.3f})"
        print(line)
