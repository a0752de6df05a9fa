"""Loads the tensors of a public checkpoint into a model, strictly.

Every parameter must come from a tensor of the right shape and every tensor must be used or known to
be superfluous; anything else is an error that names the tensor.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from qkv.checkpoints.format import CheckpointFormat
from qkv.checkpoints.tensor_names import Copy, Sizes, resolve
from qkv.errors import BundleError
from qkv.model import Model, ModelConfig, StepsHook, Translator

# Checkpoints converted from TensorFlow call the weight of a LayerNorm gamma and its bias beta.
TENSORFLOW_NORM = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")
TENSORFLOW_NAMES = {"gamma": "weight", "beta": "bias"}

# Two texts of different lengths, so that one of them is padded.
TEST_LENGTHS = (9, 4)
TOLERANCE = 1e-3


class TensorSource(Protocol):
    """Tensors on disk, by name."""

    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: object) -> bool: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def dtype(self, name: str) -> torch.dtype: ...
    def mmap(self, name: str) -> Tensor: ...
    def read(
        self, name: str, dtype: torch.dtype | None = None, out: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True)
class LoadReport:
    """How each tensor was converted, and which were not needed."""

    conversions: list[Copy]
    sources: Mapping[str, str]  # public name -> name in the file
    tied: list[str]
    ignored: list[str]


def unprefixed_names(fmt: CheckpointFormat, weights: TensorSource) -> dict[str, str]:
    """Each tensor's name without the format's prefix -> its name in the file."""
    names: dict[str, str] = {}
    for name in weights:
        public = name.removeprefix(fmt.prefix)
        public = TENSORFLOW_NORM.sub(lambda match: TENSORFLOW_NAMES[match[0]], public)
        if public in names:
            raise BundleError(f"{names[public]} and {name} are one tensor under two names")
        names[public] = name
    return names


def load_weights(
    model: Model, fmt: CheckpointFormat, weights: TensorSource, names: Mapping[str, str]
) -> LoadReport:
    """Gives a model skeleton its weights: memory-mapped where they are stored as we need them.

    Error texts are predicates ("lacks the tensor …"); the caller puts the path in front.
    """
    config = model.config
    sizes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    conversions = resolve(fmt.tensor_map(config), sizes)
    sources = _sources(fmt, config, conversions, names)
    _check_shapes(conversions, sources, sizes, weights)
    ignored = _superfluous(fmt, config, conversions, names)
    _check_aliases(fmt, config, names, weights)
    # assign=True keeps memory-mapped tensors instead of copying them into allocated ones.
    state_dict = _state_dict(conversions, sources, sizes, weights)
    model.load_state_dict(state_dict, strict=True, assign=True)
    tied = [names[alias] for alias in fmt.aliases(config) if alias in names]
    tied = sorted(name for name in tied if name not in sources.values())
    return LoadReport(conversions, sources, tied, ignored)


def _sources(
    fmt: CheckpointFormat, config: ModelConfig, conversions: list[Copy], names: Mapping[str, str]
) -> dict[str, str]:
    """Where each public tensor is in the file: under its name, or under an alias."""
    aliases: dict[str, list[str]] = {}
    for alias, name in fmt.aliases(config).items():
        aliases.setdefault(name, []).append(alias)
    sources = {}
    for conversion in conversions:
        public = conversion.public
        candidates = [name for name in (public, *aliases.get(public, ())) if name in names]
        if not candidates:
            raise BundleError(
                f"lacks the tensor {public}, needed for {', '.join(conversion.params)}; the file "
                f"is incomplete, or its config is that of another model"
            )
        sources[public] = names[candidates[0]]
    return sources


def _check_shapes(
    conversions: list[Copy], sources: Mapping[str, str], sizes: Sizes, weights: TensorSource
) -> None:
    for conversion in conversions:
        name = sources[conversion.public]
        shape = weights.shape(name)
        expected = conversion.public_shape(sizes)
        if shape != expected:
            raise BundleError(f"has {name} of shape {shape}, but its config requires {expected}")
        dtype = weights.dtype(name)
        if not dtype.is_floating_point:
            raise BundleError(f"has {name} as {dtype}, not as a floating-point type")


def _superfluous(
    fmt: CheckpointFormat, config: ModelConfig, conversions: list[Copy], names: Mapping[str, str]
) -> list[str]:
    """Tensors the model does not need and that the format knows; any other is an error."""
    needed = {conversion.public for conversion in conversions} | fmt.aliases(config).keys()
    patterns = (*fmt.obsolete_tensors, *fmt.unused_tensors(config))
    expected = [re.compile(pattern) for pattern in patterns]
    ignored = []
    for public, name in names.items():
        if public in needed:
            continue
        if not any(pattern.fullmatch(public) for pattern in expected):
            raise BundleError(
                f"has an unexpected tensor {name}, which is not part of this "
                f"{fmt.model_types[0]} model; its config does not match these weights"
            )
        ignored.append(name)
    return sorted(ignored)


def _check_aliases(
    fmt: CheckpointFormat, config: ModelConfig, names: Mapping[str, str], weights: TensorSource
) -> None:
    """Tied tensors that are stored more than once must be equal."""
    groups: dict[str, list[str]] = {}
    for alias, name in fmt.aliases(config).items():
        groups.setdefault(name, [name]).append(alias)
    for group in groups.values():
        present = [names[name] for name in group if name in names]
        for other in present[1:]:
            a = weights.read(present[0])
            b = weights.read(other)
            if a.shape != b.shape or not torch.equal(a, b):
                raise BundleError(
                    f"has {other}, which its config ties to {present[0]}, but the two differ"
                )


def _state_dict(
    conversions: list[Copy], sources: Mapping[str, str], sizes: Sizes, weights: TensorSource
) -> dict[str, Tensor]:
    """All parameters in float32.

    Tensors to convert are read into one reusable workspace: torch does not return the memory of a
    large tensor, or use it again, as soon as the tensor is gone.
    """
    params: dict[str, Tensor] = {}
    workspace_size = 0
    for conversion in conversions:
        if not conversion.is_view:
            workspace_size = max(workspace_size, math.prod(conversion.public_shape(sizes)))
            for name in conversion.params:
                params[name] = torch.empty(sizes[name])
    workspace = torch.empty(workspace_size)
    for conversion in conversions:
        source = sources[conversion.public]
        if not conversion.is_view:
            tensor = weights.read(source, torch.float32, workspace)
            for name, param in conversion.to_params(tensor, sizes).items():
                params[name].copy_(param)
        elif weights.dtype(source) == torch.float32:
            params |= conversion.to_params(weights.mmap(source), sizes)
        else:
            params |= conversion.to_params(weights.read(source, torch.float32), sizes)
    return params


@torch.inference_mode()
def self_test(model: Model) -> float:
    """Compares outputs that must agree, and returns the largest relative difference.

    The fused attention kernel is compared with the reference, and a padded batch with each text by
    itself. Differences are relative to the largest output, or to 1 if that is larger. Raises if
    outputs are not finite or differ by more than the tolerance.
    """
    ids, lengths = _test_texts(model)
    batched = _outputs(model, ids, torch.tensor(lengths))
    with _reference_attention(model):
        reference = _outputs(model, ids, torch.tensor(lengths))
    pairs = [*zip(batched, reference, strict=True)]
    for i, length in enumerate(lengths):
        single = _outputs(model, ids[i : i + 1, :length], torch.tensor([length]))
        pairs.append((batched[i], single[0]))
    values = torch.cat([output.flatten() for output in batched])
    if not bool(torch.isfinite(values).all()):
        raise BundleError("the model's outputs are not finite; its weights are damaged")
    largest = max(1.0, float(values.abs().max()))
    difference = max(float((a - b).abs().max()) for a, b in pairs) / largest
    if difference > TOLERANCE:
        raise BundleError(
            f"self-test failed: two ways to compute the model's outputs differ by "
            f"{difference:.1e}, more than the tolerance {TOLERANCE:g}; do not trust this model"
        )
    return difference


@torch.inference_mode()
def largest_difference(model: Model, rewritten: Model) -> float:
    """How far the outputs of two equivalent models differ, relative to the largest one.

    Raises if it is more than the tolerance.
    """
    ids, lengths = _test_texts(model)
    pairs = zip(
        _outputs(model, ids, torch.tensor(lengths)),
        _outputs(rewritten, ids, torch.tensor(lengths)),
        strict=True,
    )
    difference = 0.0
    for ours, theirs in pairs:
        largest = max(1.0, float(ours.abs().max()))
        difference = max(difference, float((ours.float().cpu() - theirs).abs().max()) / largest)
    if not difference <= TOLERANCE:
        raise BundleError(
            f"the rewritten model's outputs differ by {difference:.1e}, more than the tolerance "
            f"{TOLERANCE:g}; it is not exported"
        )
    return difference


def _test_texts(model: Model) -> tuple[Tensor, list[int]]:
    """Two texts of random tokens (2, T), and their lengths."""
    config = model.config
    lengths = [min(length, config.length) for length in TEST_LENGTHS]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.embedding.vocabulary, (2, max(lengths)), generator=generator)
    if isinstance(model, Translator) and model.config.source is not None:
        ids = ids % model.config.source.vocabulary  # the source may have a smaller vocabulary
    return ids.to(model.embedding.weight.device), lengths


def _outputs(model: Model, ids: Tensor, lengths: Tensor) -> list[Tensor]:
    """The output for each text, without padding."""
    if isinstance(model, Translator):
        outputs = model(ids, ids % model.config.embedding.vocabulary, lengths, lengths)
    else:
        outputs = model(ids, lengths)
    if outputs.dim() != 3:  # one vector per text
        return list(outputs)
    return [row[:length] for row, length in zip(outputs, lengths, strict=True)]


@contextmanager
def _reference_attention(model: Model) -> Iterator[None]:
    """Runs every attention through the reference kernel: a hooked core cannot use the fused one."""
    handles = []
    for module in model.modules():
        if isinstance(module, StepsHook):
            handles.append(module.register_forward_hook(lambda module, args, steps: None))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
