"""A model as a directory: config, tokenizer, weights, and a manifest with their hashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from qkv.bundle.manifest import publish, settled, verify
from qkv.device import resolve
from qkv.errors import BundleError, ConfigError
from qkv.model import Model, read_config, skeleton
from qkv.text import Tokenizer

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


@dataclass(frozen=True)
class Bundle:
    """A model and what belongs to it."""

    model: Model
    tokenizer: Tokenizer | None = None

    def save(
        self,
        directory: str | os.PathLike[str],
        beside: Callable[[Path], None] | None = None,
        replaces: Collection[str] = (),
        moves: Collection[str] = (),
    ) -> None:
        """Write all of it, or nothing: whatever happens, the old bundle or the new one is whole.

        `beside` writes further files into the directory it is given; `replaces` and `moves` are
        those of `publish`.
        """

        def write(staging: Path) -> None:
            self._write(staging)
            if beside is not None:
                beside(staging)

        publish(Path(directory), write, replaces, moves)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], device: torch.device | str = "cpu") -> Bundle:
        """The bundle in that directory, every file checked against the manifest."""
        place = Path(directory)
        where = resolve(device)
        return settled(place, lambda: cls._read(place, where))

    @classmethod
    def _read(cls, place: Path, device: torch.device) -> Bundle:
        listed = verify(place)["files"]
        for name in (CONFIG, WEIGHTS):
            if name not in listed:
                raise BundleError(f"{place} is no bundle: its manifest does not list {name}")
        try:
            model = skeleton(read_config((place / CONFIG).read_bytes()))
        except ConfigError as error:
            raise ConfigError(f"{place / CONFIG}: {error}") from None
        _fill(model, _weights(place / WEIGHTS, device), place / WEIGHTS)
        tokenizer = Tokenizer.load(place / TOKENIZER) if TOKENIZER in listed else None
        return cls(model.eval(), tokenizer)

    def _write(self, staging: Path) -> None:
        config = self.model.config.model_dump_json(indent=2)
        (staging / CONFIG).write_text(config + "\n", encoding="utf-8")
        weights = {name: t.detach().contiguous() for name, t in self.model.state_dict().items()}
        save_file(weights, staging / WEIGHTS, metadata={"format": "pt"})
        if self.tokenizer is not None:
            self.tokenizer.save(staging / TOKENIZER)


def _weights(path: Path, device: torch.device) -> dict[str, Tensor]:
    try:
        return load_file(path, device=str(device))
    except SafetensorError as error:
        raise BundleError(f"{path} is not a safetensors file: {error}") from error


def _fill(model: Model, weights: dict[str, Tensor], path: Path) -> None:
    """Every parameter from the file and nothing left over; a wrong shape is named."""
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name in sorted(wanted.keys() | weights.keys()):
        if name not in weights:
            raise BundleError(f"{path} lacks the tensor {name} {wanted[name]}")
        if name not in wanted:
            raise BundleError(f"{path} holds a tensor the model does not have: {name}")
        if not weights[name].is_floating_point():
            raise BundleError(
                f"{path}: {name} holds {weights[name].dtype}, not numbers with decimals"
            )
        if tuple(weights[name].shape) != wanted[name]:
            raise BundleError(
                f"{path}: {name} has shape {tuple(weights[name].shape)} "
                f"but the config needs {wanted[name]}"
            )
    model.load_state_dict(weights, strict=True, assign=True)
