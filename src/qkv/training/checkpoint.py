"""The state of a training run on disk: complete or absent, and the newest undamaged one is used.

    checkpoints/step-00000400/  state.safetensors  progress.json  MANIFEST.json

Resuming is bit-exact on the same machine and number of threads: weights, optimizers, moving
average, the position in the data and the random number generator continue where they were.
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

from qkv.bundle import publish, verify
from qkv.errors import BundleError, QkvError, TrainingError
from qkv.files import read_json
from qkv.legacy import upgrade
from qkv.training.trainer import Trainer

STATE = "state.safetensors"
PROGRESS = "progress.json"
MAX_CHECKPOINTS = 2  # the newest ones; the best is kept in any case


@dataclass(frozen=True)
class Progress:
    """How far a run is, and how good its best evaluation was."""

    step: int = 0
    tokens: int = 0
    best: float | None = None  # of the validation metric
    best_step: int | None = None
    last_evaluation: int = 0  # step
    seconds: float = 0.0


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def save_checkpoint(folder: Path, trainer: Trainer, progress: Progress) -> Path:
    """Writes the state of the run, then deletes older checkpoints, but never the best."""
    target = checkpoint_path(folder, progress.step)

    def write(staging: Path) -> None:
        save_file(_state(trainer), staging / STATE)
        (staging / PROGRESS).write_text(json.dumps(asdict(progress)), encoding="utf-8")

    publish(target, write)
    best = checkpoint_path(folder, progress.best_step or 0)
    for old in _newest_first(folder)[MAX_CHECKPOINTS:]:
        if old not in (target, best):
            shutil.rmtree(old)
    return target


def load_newest(folder: Path, trainer: Trainer, warn: Callable[[str], None]) -> Progress:
    """Loads the newest undamaged checkpoint; `warn` is called for each damaged one."""
    for path in _newest_first(folder):
        try:
            return load_checkpoint(path, trainer)
        except (BundleError, TrainingError) as error:
            warn(f"{error}; going back to the checkpoint before it")
    raise TrainingError(
        f"there is no undamaged checkpoint in {folder}; start again without resume=True"
    )


def load_checkpoint(path: Path, trainer: Trainer) -> Progress:
    """Verifies every file first, then loads the state into the trainer."""
    verify(path)
    progress = Progress(**upgrade(PROGRESS, read_json(path / PROGRESS)))
    tensors: dict[str, Tensor] = {}
    with safe_open(path / STATE, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            tensors[_upgrade_name(name)] = file.get_tensor(name)
    expected = {name: tensor.shape for name, tensor in _weights(trainer).items()}
    shapes = {name: t.shape for name, t in tensors.items() if name.startswith("model.")}
    if shapes != expected:
        raise TrainingError(f"{path} belongs to a model of another shape")
    _load_state(trainer, tensors)
    trainer.step = progress.step
    return progress


def read_progress(folder: Path) -> Progress | None:
    """How far the newest checkpoint is; None if there is none. The tensors are not read."""
    for path in _newest_first(folder):
        try:
            return Progress(**upgrade(PROGRESS, read_json(path / PROGRESS)))
        except (QkvError, TypeError):  # a damaged one, which resuming reports
            continue
    return None


def _weights(trainer: Trainer) -> dict[str, Tensor]:
    return {f"model.{name}": tensor for name, tensor in trainer.model.state_dict().items()}


def _state(trainer: Trainer) -> dict[str, Tensor]:
    tensors = {name: tensor.detach().contiguous() for name, tensor in _weights(trainer).items()}
    for i, optimizer in enumerate(trainer.optimizers):
        for parameter, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{i}.{parameter}.{name}"] = torch.as_tensor(value).clone()
    if trainer.ema is not None:
        tensors |= {f"ema.{name}": tensor for name, tensor in trainer.ema.weights.items()}
    tensors["rng.cpu"] = torch.get_rng_state()
    return tensors


def _load_state(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    weights: dict[str, Tensor] = {}
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in trainer.optimizers]
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group == "model":
            weights[rest] = tensor
        elif group == "optimizer":
            number, parameter, key = rest.split(".", 2)
            states[int(number)].setdefault(int(parameter), {})[key] = tensor
    trainer.model.load_state_dict(weights)
    for optimizer, state in zip(trainer.optimizers, states, strict=True):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if trainer.ema is not None:
        for name, average in trainer.ema.weights.items():
            average.copy_(tensors[f"ema.{name}"])
    torch.set_rng_state(tensors["rng.cpu"])  # last: what is above may draw random numbers


def _upgrade_name(tensor: str) -> str:
    """The tensor's name in this version; an older one may have named its group otherwise."""
    group, _, rest = tensor.partition(".")
    (group,) = upgrade(STATE, {group: None})
    return f"{group}.{rest}"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)
