"""A model as a directory: config, tokenizer, weights, and a manifest with their hashes.

A public checkpoint is loaded as well; which of the two a directory is shows in its files. A bundle
can be exported as a public checkpoint, also written completely or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, ValidationError
from safetensors.torch import save_file

from qkv.bundle.manifest import MANIFEST, bundle_directory, publish, read_stable, sha256_of, verify
from qkv.checkpoints import (
    ExportResult,
    ImportCard,
    is_checkpoint,
    read_checkpoint,
    write_checkpoint,
    write_gguf_file,
)
from qkv.device import resolve_device
from qkv.errors import BundleError, ConfigError
from qkv.files import read_json, write_error_message
from qkv.gc_pause import gc_paused
from qkv.model import Config, Count, Model, read_config, skeleton, validation_message
from qkv.text import Tokenizer
from qkv.weights import Weights, open_weights

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
CARD = "import.json"
ALIGNMENT = "alignment.json"

# The files of a public checkpoint that decide what its model computes.
CHECKPOINT_SUFFIXES = {".json", ".safetensors", ".txt", ".model", ".spm", ".jinja", ".gguf"}


class AlignmentHeads(Config):
    """The cross attention that aligns a translator's words, and how well it does.

    agreement: the fraction of `tokens` target tokens for which it names the source token that
    matters most by occlusion.
    """

    layer: Count
    heads: Annotated[tuple[Count, ...], Field(strict=False)]  # JSON has lists
    agreement: float
    tokens: Count


@dataclass(frozen=True)
class Bundle:
    """A model with its tokenizer and, if it was imported, its import card.

    alignment: of a translator, if it was measured.
    """

    model: Model
    tokenizer: Tokenizer | None = None
    card: ImportCard | None = None
    alignment: AlignmentHeads | None = None

    def save(
        self,
        directory: str | os.PathLike[str],
        write_extras: Callable[[Path], None] | None = None,
        may_replace: Collection[str] = (),
        carry_over: Collection[str] = (),
    ) -> None:
        """Write the bundle atomically: the old one or the new one is always complete on disk.

        `write_extras` writes further files into the directory it gets; `may_replace` and
        `carry_over` are those of `publish`.
        """

        def write(staging: Path) -> None:
            self._write(staging)
            if write_extras is not None:
                write_extras(staging)

        publish(Path(directory), write, may_replace, carry_over)

    @classmethod
    @gc_paused()
    def load(cls, directory: str | os.PathLike[str], device: torch.device | str = "cpu") -> Bundle:
        """The bundle in that directory, every file verified against the manifest.

        A public checkpoint (a directory or a .gguf file) is converted to a bundle in memory. The
        directory of a training run that is not finished has the best weights so far.
        """
        path = Path(directory)
        torch_device = resolve_device(device)
        if not (path / MANIFEST).exists() and is_checkpoint(path):
            checkpoint = read_checkpoint(path)
            return cls(checkpoint.model.to(torch_device), checkpoint.tokenizer, checkpoint.card)
        # Looked up at each attempt: a run that trains meanwhile replaces its best, or finishes.
        return read_stable(path, lambda: cls._read(bundle_directory(path), torch_device))

    @classmethod
    def _read(cls, directory: Path, device: torch.device) -> Bundle:
        files = verify(directory)["files"]
        for name in (CONFIG, WEIGHTS):
            if name not in files:
                raise BundleError(f"{directory} is not a bundle: its manifest does not list {name}")
        try:
            model = skeleton(read_config((directory / CONFIG).read_bytes()))
        except ConfigError as error:
            raise ConfigError(f"{directory / CONFIG}: {error}") from None
        with open_weights(directory / WEIGHTS) as weights:
            _load_weights(model, weights, directory / WEIGHTS)
        # The manifest decides: a file that it does not list was not verified and is not read.
        tokenizer = None
        if TOKENIZER in files:
            tokenizer = Tokenizer.load(directory / TOKENIZER)
        card = None
        if CARD in files:
            card = _read_card(directory / CARD)
        alignment = None
        if ALIGNMENT in files:
            alignment = _read_alignment(directory / ALIGNMENT)
        return cls(model.to(device).eval(), tokenizer, card, alignment)

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
        if self.alignment is not None:
            alignment = self.alignment.model_dump_json(indent=2)
            (staging / ALIGNMENT).write_text(alignment + "\n", encoding="utf-8")


def fingerprint(directory: Path) -> str:
    """A hash that identifies the model: of a bundle, that of its manifest."""
    manifest = bundle_directory(directory) / MANIFEST
    if manifest.is_file():
        return sha256_of(manifest)
    if not is_checkpoint(directory):
        verify(directory)  # raises, with what is missing
    if directory.is_file():
        root = directory.parent
        files = [directory]
    else:
        root = directory
        files = sorted(directory.rglob("*"))
    lines = []
    try:
        for path in files:
            if path.is_file() and path.suffix in CHECKPOINT_SUFFIXES:
                lines.append(f"{path.relative_to(root)} {sha256_of(path)}")
    except OSError as error:
        raise BundleError(f"cannot read {directory}: {error.strerror or error}") from error
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _read_card(path: Path) -> ImportCard:
    try:
        return ImportCard.model_validate(read_json(path))
    except ValidationError as error:
        raise BundleError(f"{path} is not an import card: {validation_message(error)}") from None


def _read_alignment(path: Path) -> AlignmentHeads:
    try:
        return AlignmentHeads.model_validate(read_json(path))
    except ValidationError as error:
        raise BundleError(f"{path} is not an alignment: {validation_message(error)}") from None


def _load_weights(model: Model, weights: Weights, path: Path) -> None:
    """Set every parameter from the file; raises on a missing, extra or misshapen tensor."""
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name in sorted(expected.keys() | set(weights)):
        if name not in weights:
            raise BundleError(f"{path} lacks the tensor {name} {expected[name]}")
        if name not in expected:
            raise BundleError(f"{path} holds a tensor the model does not have: {name}")
        if not weights.dtype(name).is_floating_point:
            raise BundleError(
                f"{path}: {name} holds {weights.dtype(name)}, not floating-point numbers"
            )
        if weights.shape(name) != expected[name]:
            raise BundleError(
                f"{path}: {name} has shape {weights.shape(name)} but the config needs "
                f"{expected[name]}"
            )
    tensors = {name: weights.mmap(name) for name in weights}
    model.load_state_dict(tensors, strict=True, assign=True)


def export_checkpoint(bundle: Bundle, directory: Path) -> ExportResult:
    """Write a public checkpoint that other programs read; returns its format."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BundleError(f"{directory} exists and is not an empty directory; choose another path")
    preferred = None
    if bundle.card is not None:  # an imported model goes back to the format it came from
        preferred = bundle.card.layout
    results: list[ExportResult] = []

    def write(staging: Path) -> None:
        results.append(write_checkpoint(bundle.model, bundle.tokenizer, staging, preferred))

    publish(directory, write, with_manifest=False)
    return results[0]


def export_gguf(bundle: Bundle, path: Path, weight_type: str = "f32") -> ExportResult:
    """Write a decoder as one .gguf file that llama.cpp reads; returns its format."""
    if path.exists():
        raise BundleError(f"{path} exists; choose another path")
    # The file appears when it is complete: a staging file in the same directory is renamed.
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        result = write_gguf_file(bundle.model, bundle.tokenizer, staging, weight_type, path.stem)
        staging.rename(path)
    except OSError as error:
        raise BundleError(write_error_message(path, error)) from error
    finally:
        staging.unlink(missing_ok=True)
    return result
