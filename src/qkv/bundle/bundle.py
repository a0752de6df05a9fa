"""A model as a directory: config, tokenizer, weights, and a manifest with their hashes.

A public checkpoint is opened just as well: the two are told apart by looking.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from qkv.bundle.manifest import MANIFEST, publish, read_stable, sha256_of, verify
from qkv.checkpoints import Card, is_checkpoint, read_checkpoint
from qkv.checkpoints.save import Written, write_checkpoint
from qkv.device import resolve_device
from qkv.errors import BundleError, ConfigError
from qkv.files import read_json
from qkv.gc_pause import gc_paused
from qkv.model import Model, read_config, skeleton
from qkv.model.config import validation_message
from qkv.text import Tokenizer
from qkv.weights import Weights, open_weights

# FOLDED bundle/export: A bundle as a public checkpoint, written whole or not at all.

CONFIG, WEIGHTS, TOKENIZER, CARD = (
    "config.json", "model.safetensors", "tokenizer.json", "import.json",
)  # fmt: skip

READ = {".json", ".safetensors", ".txt", ".model", ".spm", ".jinja", ".gguf"}  # of a checkpoint


@dataclass(frozen=True)
class Bundle:
    """A model and what belongs to it."""

    model: Model
    tokenizer: Tokenizer | None = None
    card: Card | None = None  # of what was imported

    def save(
        self,
        directory: str | os.PathLike[str],
        write_extras: Callable[[Path], None] | None = None,
        may_replace: Collection[str] = (),
        carry_over: Collection[str] = (),
    ) -> None:
        """Write all of it, or nothing: whatever happens, the old bundle or the new one is whole.

        `beside` writes further files into the directory it is given; `replaces` and `moves` are
        those of `publish`.
        """

        def write(staging: Path) -> None:
            self._write(staging)
            if write_extras is not None:
                write_extras(staging)

        publish(Path(directory), write, may_replace, carry_over)

    @classmethod
    @gc_paused()
    def load(cls, directory: str | os.PathLike[str], device: torch.device | str = "cpu") -> Bundle:
        """The bundle in that directory, every file checked against the manifest.

        A public checkpoint, a directory or a .gguf file, becomes a bundle on the way in.
        """
        place = Path(directory)
        where = resolve_device(device)
        if not (place / MANIFEST).exists() and is_checkpoint(place):
            found = read_checkpoint(place)
            return cls(found.model.to(where), found.tokenizer, found.card)
        return read_stable(place, lambda: cls._read(place, where))

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
        with open_weights(place / WEIGHTS) as weights:
            _fill(model, weights, place / WEIGHTS)
        tokenizer = Tokenizer.load(place / TOKENIZER) if TOKENIZER in listed else None
        card = _card(place / CARD) if CARD in listed else None
        return cls(model.to(device).eval(), tokenizer, card)

    def _write(self, staging: Path) -> None:
        config = self.model.config.model_dump_json(indent=2)
        (staging / CONFIG).write_text(config + "\n", encoding="utf-8")
        weights = {name: t.detach().contiguous() for name, t in self.model.state_dict().items()}
        save_file(weights, staging / WEIGHTS, metadata={"format": "pt"})
        if self.tokenizer is not None:
            self.tokenizer.save(staging / TOKENIZER)
        if self.card is not None:
            card = self.card.model_dump_json(indent=2)
            (staging / CARD).write_text(card + "\n", encoding="utf-8")


def fingerprint(directory: Path) -> str:
    """What tells this model from every other: of a bundle the hash of its manifest."""
    if (directory / MANIFEST).is_file():
        return sha256_of(directory / MANIFEST)
    if not is_checkpoint(directory):
        verify(directory)  # says what is missing
    home = directory.parent if directory.is_file() else directory
    files = [directory] if directory.is_file() else sorted(directory.rglob("*"))
    read = [path for path in files if path.is_file() and path.suffix in READ]
    try:
        told = [f"{path.relative_to(home)} {sha256_of(path)}" for path in read]
    except OSError as error:
        raise BundleError(f"cannot read {directory}: {error.strerror or error}") from error
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _card(path: Path) -> Card:
    try:
        return Card.model_validate(read_json(path))
    except ValidationError as error:
        raise BundleError(f"{path} is not an import card: {validation_message(error)}") from None


def _fill(model: Model, weights: Weights, path: Path) -> None:
    """Every parameter from the file and nothing left over; a wrong shape is named."""
    wanted = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name in sorted(wanted.keys() | set(weights)):
        if name not in weights:
            raise BundleError(f"{path} lacks the tensor {name} {wanted[name]}")
        if name not in wanted:
            raise BundleError(f"{path} holds a tensor the model does not have: {name}")
        if not weights.dtype(name).is_floating_point:
            raise BundleError(
                f"{path}: {name} holds {weights.dtype(name)}, not numbers with decimals"
            )
        if weights.shape(name) != wanted[name]:
            raise BundleError(
                f"{path}: {name} has shape {weights.shape(name)} but the config needs "
                f"{wanted[name]}"
            )
    filled = {name: weights.mmap(name) for name in weights}
    model.load_state_dict(filled, strict=True, assign=True)


def export_checkpoint(bundle: Bundle, place: Path) -> Written:
    """Write the directory that other programs read, and say in which layout."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise BundleError(f"{place} holds something already; choose another place")
    preferred = None if bundle.card is None else bundle.card.layout
    written: list[Written] = []

    def write(staging: Path) -> None:
        written.append(write_checkpoint(bundle.model, bundle.tokenizer, staging, preferred))

    publish(place, write, with_manifest=False)
    return written[0]
