"""Two forward passes that should be equal, compared module by module: where do they diverge first?

A recorded forward holds the output of every module in the order of computation, by location. A
location is the path of a module, such as "decoder.3.attention.core"; where layers share weights,
one module runs for several of them, and the location has the number of the layer. Two locations
are no modules: "decoder.position", the embeddings with their positions added, and
"decoder.3.attention.query_rotated" (and key_rotated), queries and keys after RoPE.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qkv.engine import inference
from qkv.model import AttentionCore, Layers, Model, StepsHook

Activations = dict[str, Tensor]  # by location, in the order of computation
TensorPair = tuple[Tensor, Tensor]
Align = Callable[[Tensor, Tensor], TensorPair]

# A hook on StepsHook would switch attention to the reference kernel; Identity does nothing.
UNRECORDED = (StepsHook, nn.Identity)
POSITION_AXES = {3: 1, 4: 2}  # (B, T, D) between modules, (B, H, T, E) inside attention


def record_forwards(model: Model, *runs: Callable[[], object]) -> list[Activations]:
    """The output of every module in each of these runs."""
    recorder = ForwardRecorder(model)
    forwards = []
    with inference(model), recorder.recording():
        for run in runs:
            run()
            forwards.append(recorder.take())
    return forwards


class ForwardRecorder:
    """Records a copy of every module's output, as a later module may change it in place."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = ModuleNames(model)
        self.activations = Activations()
        self.calls = Counter[str]()

    @contextmanager
    def recording(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for path, module in self.model.named_modules():
                if path and not isinstance(module, UNRECORDED):
                    hook = module.register_forward_hook(partial(self._on_output, path))
                    hooks.callback(hook.remove)
                owner = path.removesuffix(".core")
                if isinstance(module, AttentionCore) and owner.endswith("attention"):
                    hook = module.register_forward_pre_hook(partial(self._on_attention, owner))
                    hooks.callback(hook.remove)
            for name, stack in self.names.stacks.items():
                hook = stack.norm_in.register_forward_pre_hook(partial(self._on_stack, name))
                hooks.callback(hook.remove)
            yield

    def take(self) -> Activations:
        """The activations of one forward pass; the next starts empty."""
        activations = self.activations
        self.activations = Activations()
        self.calls.clear()
        return activations

    def _on_output(self, path: str, module: nn.Module, args: Any, output: object) -> None:
        self._record(self.names.location(path, self.calls[path]), output)
        self.calls[path] += 1

    def _on_stack(self, stack: str, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._record(f"{stack}.position", args[0])

    def _on_attention(self, path: str, core: nn.Module, args: tuple[Any, ...]) -> None:
        q, k = args[:2]
        location = self.names.location(path, self.calls[path])
        self._record(f"{location}.query_rotated", q)
        self._record(
            f"{location}.key_rotated", k[:, :, -q.shape[2] :]
        )  # with a cache: the new ones

    def _record(self, location: str, value: object) -> None:
        # The first output counts; masks, positions and other one-dimensional values do not.
        if isinstance(value, Tensor) and value.dim() > 1 and location not in self.activations:
            self.activations[location] = value.detach().clone()


class ModuleNames:
    """Locations of modules: their paths, with layers numbered in the order of computation."""

    def __init__(self, model: Model) -> None:
        children = model.named_children()
        self.stacks = {name: module for name, module in children if isinstance(module, Layers)}

    def location(self, path: str, call: int) -> str:
        """The location of a module that has been called `call` times in this forward pass."""
        stack, _, inside = path.partition(".")
        block, _, part = inside.partition(".")
        if stack not in self.stacks or not block.isdigit():
            return path if call == 0 else f"{path} ({call + 1})"
        block_of = self.stacks[stack].block_of
        layers = [layer for layer, index in enumerate(block_of) if index == int(block)]
        layer = layers[call % len(layers)]
        return ".".join(filter(None, (stack, str(layer), part)))


def select_row(activations: Activations, b: int) -> Activations:
    """One text of a batch."""
    return {location: value[b : b + 1] for location, value in activations.items()}


def slice_positions(activations: Activations, start: int, stop: int) -> Activations:
    """Some of the positions, at every location that has positions."""
    sliced = Activations()
    for location, value in activations.items():
        axis = POSITION_AXES.get(value.dim())
        if axis is not None and value.shape[axis] >= stop:
            sliced[location] = value.narrow(axis, start, stop - start)
    return sliced


def concat_steps(steps: list[Activations]) -> Activations:
    """The forward passes of consecutive steps as one, up to the first step without a location.

    What has no positions, or is computed in the first step only, such as the keys of a source,
    stays as it is.
    """
    activations = Activations()
    for location, first in steps[0].items():
        parts = []
        for step in steps:
            if location not in step:
                break
            parts.append(step[location])
        axis = POSITION_AXES.get(first.dim())
        if axis is None:
            activations[location] = first
        else:
            activations[location] = torch.cat(parts, dim=axis)
    return activations


@dataclass(frozen=True)
class Divergence:
    """The largest difference between two forwards, and the first location and position of one.

    Differences are relative to the largest number at the location. If none is beyond the
    tolerance, the location is that of the largest difference.
    """

    worst: float
    location: str
    position: int | None = None

    def describe(self, *context: str) -> str:
        """The location and position in words, with what the caller knows about them."""
        parts = [self.location, *context]
        if self.position is not None:
            parts.append(f"position {self.position}")
        return ", ".join(filter(None, parts))


def align_starts(expected: Tensor, actual: Tensor) -> TensorPair:
    """The positions that both have, from the first on."""
    axis = POSITION_AXES.get(expected.dim())
    if axis is None or actual.dim() != expected.dim():
        return expected, actual
    length = min(expected.shape[axis], actual.shape[axis])
    return expected.narrow(axis, 0, length), actual.narrow(axis, 0, length)


def align_ends(expected: Tensor, actual: Tensor) -> TensorPair:
    """The last position of both."""
    axis = POSITION_AXES.get(expected.dim())
    if axis is None or actual.dim() != expected.dim():
        return expected, actual
    last_expected = expected.narrow(axis, expected.shape[axis] - 1, 1)
    last_actual = actual.narrow(axis, actual.shape[axis] - 1, 1)
    return last_expected, last_actual


def first_divergence(
    expected: Activations, actual: Activations, tolerance: float, align: Align = align_starts
) -> Divergence:
    """Where `actual` first differs from `expected` by more than the tolerance.

    Locations that only one of them has, or where the shapes differ, are skipped.
    """
    largest = Divergence(-1.0, "")
    first: Divergence | None = None
    for location, value in expected.items():
        if location not in actual:
            continue
        # Paddings and chunks differ between the two, so only what both have is compared.
        a, b = align(value, actual[location])
        if a.shape != b.shape or not a.numel():
            continue
        difference, position = _difference(a, b, tolerance)
        divergence = Divergence(difference, location, position)
        if divergence.worst > largest.worst:
            largest = divergence
        if first is None and difference > tolerance:
            first = divergence
    if largest.worst < 0:
        return Divergence(math.inf, "no part of the model could be compared")
    reported = first or largest
    return Divergence(largest.worst, reported.location, reported.position)


def relative_difference(expected: Tensor, actual: Tensor) -> float:
    """The largest difference, relative to the largest expected number."""
    return _difference(expected, actual, math.inf)[0]


def _difference(expected: Tensor, actual: Tensor, tolerance: float) -> tuple[float, int | None]:
    """And the first position beyond the tolerance, else the one with the largest difference."""
    if torch.equal(expected, actual):  # also for infinities, whose difference is NaN
        return 0.0, None
    # Relative to the largest number, not element by element: rounding errors of a sum are of the
    # size of its largest terms, however small the sum itself.
    scale = float(expected.float().abs().max()) or 1.0
    difference = ((expected.float() - actual.float()).abs() / scale).nan_to_num(nan=math.inf)
    axis = POSITION_AXES.get(difference.dim())
    if axis is None:
        return float(difference.max()), None
    by_position = difference.movedim(axis, 0).flatten(1).amax(dim=1)
    beyond = (by_position > tolerance).nonzero()
    position = int(beyond[0]) if len(beyond) else int(by_position.argmax())
    return float(by_position.max()), position
