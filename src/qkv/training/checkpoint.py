"""Where training stands, on disk: whole or not there, the newest healthy one found again.

    checkpoints/step-00000400/  state.safetensors  progress.json  MANIFEST.json

Resuming is bit-exact on the same machine and number of threads: weights, optimizers, the position
in the data and the random numbers all go on where they were.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from qkv.bundle.manifest import publish, verify
from qkv.errors import BundleError, TrainingError
from qkv.files import read_json
from qkv.legacy import upgrade
from qkv.training.trainer import Trainer

STATE, PROGRESS = "state.safetensors", "progress.json"
KEEP = 2  # the newest ones, beside the best


@dataclass(frozen=True)
class Progress:
    """How far it is, and how good it was."""

    step: int = 0
    tokens: int = 0
    best: float | None = None  # of the watched metric on the held-out part
    best_step: int | None = None
    last_evaluation: int = 0  # the last step after which the held-out part was looked at
    seconds: float = 0.0


def save_checkpoint(folder: Path, trainer: Trainer, progress: Progress) -> Path:
    """Write where training stands; then drop older ones, but never the best."""
    target = folder / f"step-{progress.step:08d}"

    def write(staging: Path) -> None:
        save_file(_tensors(trainer), staging / STATE)
        (staging / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")

    publish(target, write)
    kept = {target.name, f"step-{progress.best_step or 0:08d}"}
    for old in _newest_first(folder)[KEEP:]:
        if old.name not in kept:
            shutil.rmtree(old)
    return target


def load_newest(folder: Path, trainer: Trainer, say: Callable[[str], None]) -> Progress:
    """Fill the trainer from the newest healthy checkpoint; `say` tells of damaged ones."""
    for place in _newest_first(folder):
        try:
            return load_checkpoint(place, trainer)
        except (BundleError, TrainingError) as error:
            say(f"{error}; going back to the checkpoint before it")
    raise TrainingError(f"there is no healthy checkpoint in {folder}; start again without --resume")


def load_checkpoint(place: Path, trainer: Trainer) -> Progress:
    """Check every file first, then fill the trainer."""
    verify(place)
    progress = Progress(**upgrade(PROGRESS, read_json(place / PROGRESS)))
    with safe_open(place / STATE, framework="pt") as file:
        tensors = {_new_name(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    wanted = {name: t.shape for name, t in _weights(trainer).items()}
    found = {name: t.shape for name, t in tensors.items() if name.startswith("model.")}
    if wanted != found:
        raise TrainingError(f"{place} belongs to a model of another shape")
    _fill(trainer, tensors)
    trainer.step = progress.step
    return progress


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return {f"model.{name}": t for name, t in trainer.model.state_dict().items()}


def _tensors(trainer: Trainer) -> dict[str, Tensor]:
    tensors = {name: t.detach().contiguous() for name, t in _weights(trainer).items()}
    for i, optimizer in enumerate(trainer.optimizers):
        for parameter, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{i}.{parameter}.{name}"] = torch.as_tensor(value).clone()
    if trainer.ema is not None:
        tensors |= {f"ema.{name}": t for name, t in trainer.ema.weights.items()}
    tensors["rng.cpu"] = torch.get_rng_state()
    return tensors


def _fill(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    prefix = "model."
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    trainer.model.load_state_dict(weights)
    for i, optimizer in enumerate(trainer.optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            index, _, rest = rest.partition(".")
            if kind == "optimizer" and index == str(i):
                parameter, _, key = rest.partition(".")
                state.setdefault(int(parameter), {})[key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if trainer.ema is not None:
        for name, mean in trainer.ema.weights.items():
            mean.copy_(tensors[f"ema.{name}"])
    torch.set_rng_state(tensors["rng.cpu"])


def _new_name(tensor: str) -> str:
    group, _, rest = tensor.partition(".")
    (group,) = upgrade(STATE, {group: None})
    return f"{group}.{rest}"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)
