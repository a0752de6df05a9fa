"""What if: changes to one pass, put back afterwards. A second trace then shows what they did.

Each edit is a value; `applied` makes it hold inside a `with`. Names go by layers, as in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from qkv.attention import Mask, Rotation, Steps, Unturned, softmax
from qkv.errors import UsageError
from qkv.explain.trace.graph import Graph
from qkv.explain.trace.node import Node
from qkv.model.attention import Mix


@dataclass(frozen=True)
class Edit:
    """One change; the nodes it sets by hand are those whose names match `touched`."""

    def touched(self) -> tuple[str, ...]:
        return ()

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        """Inside, the model computes with the change."""
        yield

    def ids(self, sequence: str, ids: list[int]) -> list[int]:
        """What is read instead."""
        return ids


@dataclass(frozen=True)
class NoScale(Edit):
    """Scores are not divided by √d_k, in any layer."""

    def __str__(self) -> str:
        return "no scale"

    def touched(self) -> tuple[str, ...]:
        return ("*.scaled",)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        mixes = [part for part in model.modules() if isinstance(part, Mix)]
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
            mask = Mask(tuple(part for part in arguments[3].parts if _adds(part)))
            return (*arguments[:3], mask)

        with _hooked([m.register_forward_pre_hook(bare) for m in _mixes(model)]):
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
        from qkv.model.block import Block
        from qkv.model.stack import Layers

        def unplaced(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            x, view, *rest = arguments
            seen = Mask(tuple(part for part in view.mask.parts if not _adds(part)))
            return (x, replace(view, mask=seen, rotation=_not_turning(view.rotation)), *rest)

        hooks = [
            part.register_forward_pre_hook(unplaced)
            for part in model.modules()
            if isinstance(part, Block)
        ]
        for stack in (part for part in model.modules() if isinstance(part, Layers)):
            hooks += _embeddings_as_they_are(stack)
        with _hooked(hooks):
            yield


@dataclass(frozen=True)
class HeadOff(Edit):
    """One head of one layer adds nothing; counted from 0. part: attention or cross."""

    stack: str
    layer: int
    head: int
    part: str = "attention"

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.part} without head {self.head}"

    def touched(self) -> tuple[str, ...]:
        return (f"{self.stack}.{self.layer}.{self.part}.mixed",)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def silent(mixed: Tensor) -> Tensor:
            if not 0 <= self.head < mixed.shape[1]:
                raise UsageError(f"head {self.head} is asked for, but there are {mixed.shape[1]}")
            mixed = mixed.clone()
            mixed[:, self.head] = 0.0
            return mixed

        with _results(model, graph[self.touched()[0]], silent):
            yield


@dataclass(frozen=True)
class TokenReplaced(Edit):
    """Another token at a position of a sequence; its id, and how it is shown."""

    position: int
    id: int
    shown: str = ""
    sequence: str = "text"

    def __str__(self) -> str:
        return f"{self.shown or self.id} at position {self.position} of the {self.sequence}"

    def ids(self, sequence: str, ids: list[int]) -> list[int]:
        if sequence != self.sequence:
            return ids
        if not -len(ids) <= self.position < len(ids):
            raise UsageError(f"position {self.position} is not among the {len(ids)} there are")
        changed = list(ids)
        changed[self.position] = self.id
        return changed


@dataclass(frozen=True)
class Changed(Edit):
    """One number of a value: a state, a score, a weight; what follows is computed from it."""

    name: str
    at: tuple[int, ...]
    value: float

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.at))}] = {self.value:g}"

    def touched(self) -> tuple[str, ...]:
        return (self.name,)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        node = graph[self.name]
        if node.pick is None or node.pick.place not in ("result", "step"):
            raise UsageError(f"{self.name} cannot be changed; change what it is made from")
        change = _results if node.pick.place == "result" else _steps
        with change(model, node, self._set):
            yield

    def _set(self, value: Tensor) -> Tensor:
        if len(self.at) != value.dim() or any(
            not -size <= i < size for i, size in zip(self.at, value.shape, strict=False)
        ):
            raise UsageError(f"{self.name} has shape {tuple(value.shape)}, so no cell {self.at}")
        value = value.clone()
        value[self.at] = self.value
        return value


def is_touched(name: str, edits: Sequence[Edit]) -> bool:
    """Whether one of these edits sets this node by hand."""
    return any(fnmatchcase(name, pattern) for edit in edits for pattern in edit.touched())


Change = Callable[[Tensor], Tensor]


@contextmanager
def _results(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """What a module gives at the node's call of it is changed."""
    pick = node.pick
    assert pick is not None
    calls = 0

    def hook(module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        return change(result) if calls - 1 == pick.call else None

    with _hooked([model.get_submodule(pick.module).register_forward_hook(hook)]):
        yield


@contextmanager
def _steps(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """A step of attention is changed, and the later ones are computed again from it."""
    pick = node.pick
    assert pick is not None
    mix = model.get_submodule(pick.module)
    assert isinstance(mix, Mix)
    calls, values = 0, torch.empty(0)

    def arguments_of(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        nonlocal calls, values
        calls, values = calls + 1, arguments[2]

    def hook(module: nn.Module, arguments: tuple[Any, ...], steps: Steps) -> Steps | None:
        if calls - 1 != pick.call:
            return None
        return after_change(steps, pick.which, change, values, mix)

    hooks = [mix.register_forward_pre_hook(arguments_of), mix.steps.register_forward_hook(hook)]
    with _hooked(hooks):
        yield


def after_change(steps: Steps, name: str, change: Change, v: Tensor, mix: Mix) -> Steps:
    """The steps with one of them changed: those before stay, those after follow from it."""
    from qkv.attention.reference import scale_factor, soft_cap

    order = ("scores", "scaled", "capped", "masked", "weights", "output")
    d_k_factor = steps.scaled / steps.scores if mix.scale is None else None
    new = {part: getattr(steps, part) for part in order}
    new[name] = change(new[name])
    later = order[order.index(name) + 1 :]
    if "scaled" in later:
        factor = scale_factor(1, mix.scale) if d_k_factor is None else _one(d_k_factor)
        new["scaled"] = new["scores"] * factor
    if "capped" in later:
        new["capped"] = new["scaled"] if mix.cap is None else soft_cap(new["scaled"], mix.cap)
    if "masked" in later:
        hidden = steps.masked == -torch.inf
        added = (steps.masked - steps.capped).masked_fill(hidden, 0.0)
        new["masked"] = (new["capped"] + added).masked_fill(hidden, -torch.inf)
    if "weights" in later:
        new["weights"] = softmax(new["masked"])
    group = new["weights"].shape[1] // v.shape[1]
    new["output"] = new["weights"] @ v.repeat_interleave(group, dim=1)
    return Steps(**new)


def _one(factors: Tensor) -> float:
    """The factor that all cells share; a score of 0 tells nothing of it."""
    finite = factors[factors.isfinite()]
    return float(finite.median()) if len(finite) else 1.0


def _embeddings_as_they_are(stack: nn.Module) -> list[Any]:
    """What a stack is given goes to its first norm without positions."""
    given: list[Tensor] = []

    def take(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        given[:] = [arguments[0]]

    def put(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given[0],)

    norm_in = stack.norm_in
    assert isinstance(norm_in, nn.Module)
    return [stack.register_forward_pre_hook(take), norm_in.register_forward_pre_hook(put)]


def _not_turning(given: Rotation | Unturned) -> Rotation | Unturned:
    """By an angle of 0 everywhere."""
    if isinstance(given, Unturned):
        return given
    return Rotation(torch.ones_like(given.cos), torch.zeros_like(given.sin), given.adjacent)


def _adds(part: Any) -> bool:
    """Whether a part of a mask adds numbers to the scores."""
    from qkv.attention import Alibi
    from qkv.attention.mask import Bias
    from qkv.attention.relative import Buckets

    return isinstance(part, Alibi | Bias | Buckets)


def _mixes(model: nn.Module) -> list[Mix]:
    return [part for part in model.modules() if isinstance(part, Mix)]


@contextmanager
def _hooked(handles: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
