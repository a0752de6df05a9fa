"""Two passes that should be equal, compared part by part: where do they part, and how far?"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from qkv.engine.batching import inference
from qkv.model import AttentionCore, Layers, Model, StepsHook

# FOLDED check/passage: One pass through a model, seen from inside: what came out of each of its
#   parts, in order.
#
#   A place is the path of a module, as in "decoder.3.attention.core". Where layers share their
#   weights
#   one module is called for several of them; the place then has the number of the layer. Two
#   places
#   are no modules: "decoder.position", the embeddings with their positions in them, and
#   "decoder.3.attention.query_rotated" (and key_rotated), what is compared after rotary
#   positions.

Values = dict[str, Tensor]  # by place, in the order of computation

UNSEEN = (
    StepsHook,
    nn.Identity,
)  # a tap that is hooked changes the kernel, and the other does nothing

AXES = {3: 1, 4: 2}  # of positions: (B, T, D) between modules, (B, H, T, E) inside attention


def record_forwards(model: Model, *runs: Callable[[], object]) -> list[Values]:
    """Everything that came out of the parts of the model in each of these runs."""
    watcher, found = Watcher(model), list[Values]()
    with inference(model), watcher.watching():
        for run in runs:
            run()
            found.append(watcher.take())
    return found


class Watcher:
    """Keeps what every part of a model gives; copied, as a later part may change it in place."""

    def __init__(self, model: Model) -> None:
        self.model, self.places = model, Places(model)
        self.values, self.calls = Values(), Counter[str]()

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for path, part in self.model.named_modules():
                if path and not isinstance(part, UNSEEN):
                    hook = part.register_forward_hook(partial(self._after, path))
                    hooks.callback(hook.remove)
                owner = path.removesuffix(".core")
                if isinstance(part, AttentionCore) and owner.endswith("attention"):
                    before = part.register_forward_pre_hook(partial(self._turned, owner))
                    hooks.callback(before.remove)
            for name, stack in self.places.stacks.items():
                before = stack.norm_in.register_forward_pre_hook(partial(self._placed, name))
                hooks.callback(before.remove)
            yield

    def take(self) -> Values:
        """What one pass gave; the next one begins with nothing."""
        found, self.values = self.values, Values()
        self.calls.clear()
        return found

    def _after(self, path: str, part: nn.Module, given: Any, value: object) -> None:
        self._keep(self.places.name(path, self.calls[path]), value)
        self.calls[path] += 1

    def _placed(self, stack: str, part: nn.Module, given: tuple[Any, ...]) -> None:
        self._keep(f"{stack}.position", given[0])

    def _turned(self, path: str, mix: nn.Module, given: tuple[Any, ...]) -> None:
        (q, k), place = given[:2], self.places.name(path, self.calls[path])
        self._keep(f"{place}.query_rotated", q)
        self._keep(f"{place}.key_rotated", k[:, :, -q.shape[2] :])  # in a cache, the new ones

    def _keep(self, place: str, value: object) -> None:
        if isinstance(value, Tensor) and value.dim() > 1 and place not in self.values:
            self.values[place] = value.detach().clone()


class Places:
    """The names of places: paths of modules, with layers counted as they are computed."""

    def __init__(self, model: Model) -> None:
        children = model.named_children()
        self.stacks = {name: part for name, part in children if isinstance(part, Layers)}

    def name(self, path: str, call: int) -> str:
        """The place of a module that has been called so often before in this pass."""
        stack, _, inside = path.partition(".")
        block, _, part = inside.partition(".")
        if stack not in self.stacks or not block.isdigit():
            return path if call == 0 else f"{path} ({call + 1})"
        layers = [i for i, run in enumerate(self.stacks[stack].block_of) if run == int(block)]
        return ".".join(filter(None, (stack, str(layers[call % len(layers)]), part)))


def select_row(values: Values, b: int) -> Values:
    """Of texts side by side, one."""
    return {place: value[b : b + 1] for place, value in values.items()}


def slice_positions(values: Values, start: int, stop: int) -> Values:
    """Some of the positions, at every place that has positions."""
    return {
        place: value.narrow(AXES[value.dim()], start, stop - start)
        for place, value in values.items()
        if value.dim() in AXES and value.shape[AXES[value.dim()]] >= stop
    }


def concat_steps(steps: list[Values]) -> Values:
    """Passes one after the other as one, as far as a place was come by in all of them.

    What was computed in the first step alone, as the keys of a source, stays as it is.
    """
    found = Values()
    for place, first in steps[0].items():
        each = takewhile(lambda value: value is not None, (step.get(place) for step in steps))
        parts = [value for value in each if value is not None]
        found[place] = torch.cat(parts, dim=AXES[first.dim()]) if first.dim() in AXES else first
    return found


Pair = tuple[Tensor, Tensor]

Align = Callable[[Tensor, Tensor], Pair]


@dataclass(frozen=True)
class Divergence:
    """How far two passes are apart at most, and at which place and position first.

    Distances are in parts of the largest number at that place. If nothing is beyond the tolerance
    the place is where they are furthest apart.
    """

    worst: float
    place: str
    position: int | None = None

    def told(self, *where: str) -> str:
        """The place in words, with what the caller knows of it."""
        position = () if self.position is None else (f"position {self.position}",)
        return ", ".join(filter(None, (self.place, *where, *position)))


def align_starts(one: Tensor, other: Tensor) -> Pair:
    """The positions that both have, counted from the first."""
    axis = AXES.get(one.dim())
    if axis is None or other.dim() != one.dim():
        return one, other
    both = min(one.shape[axis], other.shape[axis])
    return one.narrow(axis, 0, both), other.narrow(axis, 0, both)


def align_ends(one: Tensor, other: Tensor) -> Pair:
    """The last position of both."""
    axis = AXES.get(one.dim())
    if axis is None or other.dim() != one.dim():
        return one, other
    return one.narrow(axis, one.shape[axis] - 1, 1), other.narrow(axis, other.shape[axis] - 1, 1)


def first_divergence(
    one: Values, other: Values, tolerance: float, align: Align = align_starts
) -> Divergence:
    """Where `other` departs from `one`, which is taken to be right; places that only one of them
    has, or where they have other shapes, are passed over.
    """
    furthest, first = Divergence(-1.0, ""), None
    for place, value in one.items():
        if place not in other:
            continue
        a, b = align(value, other[place])
        if a.shape != b.shape or not a.numel():
            continue
        distance, position = _distance(a, b, tolerance)
        found = Divergence(distance, place, position)
        furthest = max(furthest, found, key=lambda first_divergence: first_divergence.worst)
        first = found if first is None and distance > tolerance else first
    if furthest.worst < 0:
        return Divergence(math.inf, "no part of the model could be compared")
    told = furthest if first is None else first
    return Divergence(furthest.worst, told.place, told.position)


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference, in parts of the largest number of the first."""
    return _distance(one, other, math.inf)[0]


def _distance(one: Tensor, other: Tensor, tolerance: float) -> tuple[float, int | None]:
    """And the first position beyond the tolerance, else the one with the largest difference."""
    if torch.equal(one, other):
        return 0.0, None
    gap, size = (one.float() - other.float()).abs(), float(one.float().abs().max())
    gap = (gap / (size or 1.0)).nan_to_num(nan=math.inf)
    axis = AXES.get(gap.dim())
    if axis is None:
        return float(gap.max()), None
    each = gap.movedim(axis, 0).flatten(1).amax(dim=1)  # of each position
    beyond = (each > tolerance).nonzero()
    position = int(beyond[0]) if len(beyond) else int(each.argmax())
    return float(each.max()), position
