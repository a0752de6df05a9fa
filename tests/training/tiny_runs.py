"""Runs of all five jobs that are over in a moment: tiny texts, one narrow layer, with dropout."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from qkv.bundle.bundle import TOKENIZER
from qkv.training.prepare import TrainArgs, prepare
from qkv.training.run import Run
from qkv.training.run_directory import RECIPE
from qkv.training.tasks import DataConfig

CPU = torch.device("cpu")
JOBS = ("language", "masked", "classify", "translate", "embed")
STORY = "the cat sat on a mat and the dog ran to the red barn while birds sang"
WORDS = STORY.split()
NARROW = {"width": 16, "layers": 1, "dropout": 0.1}


def sentences(count: int, seed: int = 0, words: Sequence[str] = WORDS) -> list[str]:
    draws = random.Random(seed)
    return [" ".join(draws.choices(words, k=draws.randint(2, 9))) for _ in range(count)]


def labelled(count: int, labels: str = "ab", seed: int = 0) -> str:
    """A .csv of texts, whose label is the beginning of their last word."""
    rows = [
        f"{text} {label}{label},{label}"
        for text, label in zip(sentences(count, seed), labels * count, strict=False)
    ]
    return "\n".join(["text,label", *rows, ""])


def pairs(count: int, seed: int = 0) -> str:
    """A .csv of texts beside the same words in the other order."""
    rows = [f"{text},{' '.join(reversed(text.split()))}" for text in sentences(count, seed)]
    return "\n".join(["source,target", *rows, ""])


def data_for(job: str, folder: Path) -> DataConfig:
    """A file of examples for that job, written into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if job in ("language", "masked"):
        return written(folder / "book.txt", " ".join(sentences(150)))
    if job == "translate":
        return written(folder / "pairs.csv", pairs(47))
    return written(folder / "texts.csv", labelled(47), text="text", label="label")


def written(path: Path, content: str, **columns: str) -> DataConfig:
    path.write_text(content, encoding="utf-8")
    return DataConfig(files=(str(path),), **columns)


def args_for(job: str, data: DataConfig, steps: int | None = 6, **changes: Any) -> TrainArgs:
    """A tiny model for these data; `changes` are of the args, but `settings` are added."""
    settings = {"model": NARROW, **changes.pop("settings", {})}
    small = TrainArgs(job, data, size="tiny", vocab_size=300, context_length=16, batch=64, seed=5)
    if changes.get("from_") is not None:
        small = replace(small, size=None)
    return replace(small, steps=steps, settings=settings, **changes)


def start(folder: Path, args: TrainArgs) -> Run:
    """The run before its first step, with what the command line writes before it."""
    prepared = prepare(args)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECIPE).write_text(prepared.recipe.toml(), encoding="utf-8")
    prepared.tokenizer.save(folder / TOKENIZER)
    return Run(prepared, folder, CPU)


def whole(folder: Path, args: TrainArgs) -> Run:
    """The same after its last step."""
    run = start(folder, args)
    for _ in run.events():
        pass
    return run


def trained(folder: Path, args: TrainArgs) -> Path:
    """The finished bundle."""
    whole(folder, args).finish()
    return folder


def fingerprint(run: Run) -> str:
    """The same for the same weights, running mean and best evaluation."""
    digest = hashlib.sha256(repr((run.progress.best, run.progress.best_step)).encode())
    mean = {} if run.trainer.ema is None else run.trainer.ema.weights
    for part in (run.model.state_dict(), mean):
        for name, tensor in sorted(part.items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()
