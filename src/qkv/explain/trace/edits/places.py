"""What if scores were not scaled, nothing was hidden, or the order of words could not be seen?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from qkv.attention import Mask, Part, Rotation, Unturned
from qkv.explain.trace.edits.edit import Edit, hooked
from qkv.explain.trace.graph import Graph
from qkv.model import Block, Layers, Mix


@dataclass(frozen=True)
class NoScale(Edit):
    """Scores are not divided by √d_k, in any layer."""

    def __str__(self) -> str:
        return "no scale"

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        mixes = _mixes(model)
        scales = [mix.scale for mix in mixes]
        for mix in mixes:
            mix.scale = 1.0
        try:
            yield
        finally:
            for mix, scale in zip(mixes, scales, strict=True):
                mix.scale = scale


@dataclass(frozen=True)
class NoMask(Edit):
    """Every query sees every key; what distances add to the scores stays."""

    def __str__(self) -> str:
        return "no mask"

    def touched(self) -> tuple[str, ...]:
        return ("*.seen",)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def bare(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            return (*arguments[:3], _only(arguments[3], adding=True))

        with hooked([m.register_forward_pre_hook(bare) for m in _mixes(model)]):
            yield


@dataclass(frozen=True)
class NoPosition(Edit):
    """Nothing is added to embeddings or scores for a position, and nothing is turned by it."""

    def __str__(self) -> str:
        return "no position"

    def touched(self) -> tuple[str, ...]:
        return ("*.position", "*.cos", "*.sin", "*.bias")

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def unplaced(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            x, view, *rest = arguments
            seen, unturned = _only(view.mask, adding=False), _not_turning(view.rotation)
            return (x, replace(view, mask=seen, rotation=unturned), *rest)

        hooks = [
            part.register_forward_pre_hook(unplaced)
            for part in model.modules()
            if isinstance(part, Block)
        ]
        for stack in (part for part in model.modules() if isinstance(part, Layers)):
            hooks += _embeddings_as_they_are(stack)
        with hooked(hooks):
            yield


def _embeddings_as_they_are(stack: Layers) -> list[RemovableHandle]:
    """What a stack is given goes to its first norm without positions."""
    given: list[Tensor] = []

    def take(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        given[:] = [arguments[0]]

    def put(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given[0],)

    return [stack.register_forward_pre_hook(take), stack.norm_in.register_forward_pre_hook(put)]


def _not_turning(given: Rotation | Unturned) -> Rotation | Unturned:
    """By an angle of 0 everywhere."""
    if isinstance(given, Unturned):
        return given
    return Rotation(torch.ones_like(given.cos), torch.zeros_like(given.sin), given.adjacent)


def _only(mask: Mask, adding: bool) -> Mask:
    """The parts of a mask that add to the scores, or those that hide."""
    return Mask(tuple(part for part in mask.parts if _adds(part) == adding))


def _adds(part: Part) -> bool:
    """Whether it has a number to add, or only says who may look."""
    return type(part).bias is not Part.bias


def _mixes(model: nn.Module) -> list[Mix]:
    return [part for part in model.modules() if isinstance(part, Mix)]
