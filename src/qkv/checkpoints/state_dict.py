"""Every tensor of a file put in its place in the model, or an error that names it."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from qkv.checkpoints.format import Layout
from qkv.checkpoints.tensor_names import Same, Sizes, rows
from qkv.errors import BundleError
from qkv.model import Translator
from qkv.model.attention import StepsHook
from qkv.model.build import Model, ModelConfig

# FOLDED layout/self_test: A first proof that a model came over whole: two ways to compute one
#   answer must agree.

GREEK = re.compile(r"(?<=LayerNorm\.)(gamma|beta)$")


class Stored(Protocol):
    """Tensors on disk by name."""

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
class Placed:
    """Which rows of the table were filled, from where, and what was left over."""

    rows: list[Same]
    source: Mapping[str, str]  # a row's public name to the name in the file
    tied: list[str]
    ignored: list[str]


def plain_names(layout: Layout, weights: Stored) -> dict[str, str]:
    """Each tensor's name without the layout's prefix, to the name it has in the file.

    Checkpoints that once came from TensorFlow call the weight of a norm gamma and its bias beta.
    """
    found: dict[str, str] = {}
    for name in weights:
        plain = name.removeprefix(layout.prefix)
        plain = GREEK.sub(lambda match: {"gamma": "weight", "beta": "bias"}[match[0]], plain)
        if plain in found:
            raise BundleError(f"{found[plain]} and {name} are one tensor under two names")
        found[plain] = name
    return found


def fill(model: Model, layout: Layout, weights: Stored, names: Mapping[str, str]) -> Placed:
    """Give the skeleton its weights. An error's subject is the checkpoint, for the caller to name.

    Tensors are mapped where they are stored as we need them, else in memory of their own.
    """
    config = model.config
    sizes = {name: t.shape for name, t in model.state_dict().items()}
    placed = rows(layout.table(config), sizes)
    source = _sources(layout, config, placed, names)
    _check_shapes(placed, source, sizes, weights)
    ignored = _left_over(layout, config, placed, names)
    _check_twins(layout, config, names, weights)
    model.load_state_dict(_filled(placed, source, sizes, weights), strict=True, assign=True)
    twins = (names[twin] for twin in layout.twins(config) if twin in names)
    tied = sorted(name for name in twins if name not in source.values())
    return Placed(placed, source, tied, ignored)


def _sources(
    layout: Layout, config: ModelConfig, placed: list[Same], names: Mapping[str, str]
) -> dict[str, str]:
    """Where each public tensor that is needed is found: under its name, or that of a twin."""
    twins: dict[str, list[str]] = {}
    for twin, first in layout.twins(config).items():
        twins.setdefault(first, []).append(twin)
    found = {}
    for row in placed:
        under = [n for n in (row.theirs, *twins.get(row.theirs, ())) if n in names]
        if not under:
            raise BundleError(
                f"lacks the tensor {row.theirs}, needed for {', '.join(row.ours)}; it is "
                f"incomplete, or of another kind than its config says"
            )
        found[row.theirs] = names[under[0]]
    return found


def _check_shapes(
    placed: list[Same], source: Mapping[str, str], sizes: Sizes, weights: Stored
) -> None:
    for row in placed:
        where = source[row.theirs]
        wanted = row.shape(sizes)
        found = weights.shape(where)
        kind = weights.dtype(where)
        if found != wanted:
            raise BundleError(f"has {where} of shape {found}, but its config asks for {wanted}")
        if not kind.is_floating_point:
            raise BundleError(f"has {where} as {kind}, not as numbers with decimals")


def _left_over(
    layout: Layout, config: ModelConfig, placed: list[Same], names: Mapping[str, str]
) -> list[str]:
    """Tensors nothing is made of, all of them known ones; any other is refused."""
    used = {row.theirs for row in placed} | layout.twins(config).keys()
    known = [re.compile(pattern) for pattern in (*layout.leftovers, *layout.unused(config))]
    ignored = []
    for plain, name in names.items():
        if plain in used:
            continue
        if not any(pattern.fullmatch(plain) for pattern in known):
            raise BundleError(
                f"holds the tensor {name}, for which this {layout.kinds[0]} model has no place; "
                f"its config does not describe these weights"
            )
        ignored.append(name)
    return sorted(ignored)


def _check_twins(
    layout: Layout, config: ModelConfig, names: Mapping[str, str], weights: Stored
) -> None:
    """What is said to be one tensor and is stored twice must be the same twice."""
    together: dict[str, list[str]] = {}
    for twin, first in layout.twins(config).items():
        together.setdefault(first, [first]).append(twin)
    for members in together.values():
        stored = [names[name] for name in members if name in names]
        for other in stored[1:]:
            one, two = (weights.read(name) for name in (stored[0], other))
            if one.shape != two.shape or not torch.equal(one, two):
                raise BundleError(
                    f"has {other}, which should be {stored[0]} under a second name, as its config "
                    f"ties them, but they differ"
                )


def _filled(
    placed: list[Same], source: Mapping[str, str], sizes: Sizes, weights: Stored
) -> dict[str, Tensor]:
    """All our tensors.

    What must be changed is read into one and the same room: torch's memory for a large tensor is
    not given back or used again as soon as the tensor is gone.
    """
    filled = {n: torch.empty(sizes[n]) for row in placed if row.changed for n in row.ours}
    room = torch.empty(
        max((math.prod(row.shape(sizes)) for row in placed if row.changed), default=0)
    )
    for row in placed:
        where = source[row.theirs]
        if row.changed:
            whole = weights.read(where, torch.float32, room)
            for name, part in row.take(whole, sizes).items():
                filled[name].copy_(part)
        elif weights.dtype(where) == torch.float32:
            filled |= row.take(weights.mmap(where), sizes)
        else:
            filled |= row.take(weights.read(where, torch.float32), sizes)
    return filled


LENGTHS = (9, 4)  # of the two texts

TOLERANCE = 1e-3


@torch.inference_mode()
def self_test(model: Model) -> float:
    """The largest difference between the fused kernel and the reference, and between texts side by
    side and each text alone; in parts of the largest answer, or of 1 if that is less.

    Answers that are not finite or do not agree are an error.
    """
    config = model.config
    lengths = [min(n, config.length) for n in LENGTHS]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(config.embedding.vocabulary, (2, max(lengths)), generator=generator)
    if isinstance(model, Translator) and model.config.source is not None:
        ids = ids % model.config.source.vocabulary
    ids = ids.to(model.embedding.weight.device)
    sizes = torch.tensor(lengths)
    together = _answers(model, ids, sizes)
    with _watched(model):
        watched = _answers(model, ids, sizes)
    alone = [_answers(model, ids[i : i + 1, :n], torch.tensor([n])) for i, n in enumerate(lengths)]
    whole = torch.cat([part.flatten() for part in together])
    if not bool(torch.isfinite(whole).all()):
        raise BundleError("the model's answers are not finite numbers; its weights are damaged")
    largest = max(1.0, float(whole.abs().max()))
    pairs = [*zip(together, watched, strict=True)]
    pairs += [(one, other[0]) for one, other in zip(together, alone, strict=True)]
    difference = max(float((a - b).abs().max()) for a, b in pairs) / largest
    if difference > TOLERANCE:
        raise BundleError(
            f"two ways to compute the model's answers differ by {difference:.1e}, where "
            f"{TOLERANCE:g} is allowed; do not trust this model"
        )
    return difference


def _answers(model: Model, ids: Tensor, lengths: Tensor) -> list[Tensor]:
    """What the model says of each text, where it is real."""
    if isinstance(model, Translator):
        said = model(ids, ids % model.config.embedding.vocabulary, lengths, lengths)
    else:
        said = model(ids, lengths)
    return [row[:n] if said.dim() == 3 else row for row, n in zip(said, lengths, strict=True)]


@contextmanager
def _watched(model: Model) -> Iterator[None]:
    """Inside, every attention runs through the reference kernel."""
    taps = [module for module in model.modules() if isinstance(module, StepsHook)]
    hooks = [tap.register_forward_hook(lambda module, given, steps: None) for tap in taps]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
