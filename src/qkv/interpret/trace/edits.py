"""One change to a pass, put back afterwards; and how hooks come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from qkv.attention import Mask, Part, Rotation, Steps, Unturned, soft_cap, softmax
from qkv.attention.reference import scale_factor
from qkv.errors import UsageError
from qkv.interpret.trace.graph import Graph, Node
from qkv.model import AttentionCore, Block, Layers

# FOLDED explain/trace/edits/steps: A step of attention changed on its way through the tap; the
#   later ones follow from it.
# FOLDED explain/trace/edits/values: What if a head were off, another token stood there, or a
#   number were another one?
# FOLDED explain/trace/edits/places: What if scores were not scaled, nothing was hidden, or the
#   order of words could not be seen?


@dataclass(frozen=True)
class Edit:
    """One change; the nodes it sets by hand are those whose names match `touched`."""

    def overrides(self) -> tuple[str, ...]:
        return ()

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        """Inside, the model computes with the change."""
        yield

    def ids(self, sequence: str, ids: list[int]) -> list[int]:
        """What is read instead."""
        return ids

    def tokens(self, sequence: str, tokens: list[str]) -> list[str]:
        """How that is shown."""
        return tokens


def is_overridden(name: str, edits: Sequence[Edit], graph: Graph) -> bool:
    """Whether one of these edits sets this node by hand."""
    patterns = (pattern for edit in edits for pattern in edit.overrides())
    return any(fnmatchcase(name, graph.aliases.get(each, each)) for each in patterns)


@contextmanager
def hooked(handles: list[RemovableHandle]) -> Iterator[None]:
    """Inside, the hooks are there."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


Change = Callable[[Tensor], Tensor]

ORDER = ("scores", "scaled", "capped", "masked", "weights", "output")


@contextmanager
def changed_step(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """Inside, the step is changed at the node's call of its attention."""
    hook_point = node.hook_point
    assert hook_point is not None
    mix = model.get_submodule(hook_point.module)
    assert isinstance(mix, AttentionCore)
    seen: list[tuple[Tensor, Tensor]] = []  # queries and values of each call

    def look(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        seen.append((arguments[0], arguments[2]))

    def hook(module: nn.Module, arguments: tuple[Any, ...], steps: Steps) -> Steps | None:
        if len(seen) - 1 != hook_point.call:
            return None
        q, v = seen[-1]
        factor = scale_factor(q.shape[-1], mix.scale)
        return followed(steps, hook_point.which, change, factor, mix.cap, v)

    hooks = [mix.register_forward_pre_hook(look), mix.hook_point.register_forward_hook(hook)]
    with hooked(hooks):
        yield


def followed(
    steps: Steps, name: str, change: Change, factor: float, cap: float | None, v: Tensor
) -> Steps:
    """The steps before the changed one as they were, those after it computed from it."""
    hidden = steps.masked == -torch.inf
    added = (steps.masked - steps.capped).masked_fill(hidden, 0.0)
    group = steps.weights.shape[1] // v.shape[1]
    computed: dict[str, Change] = {
        "scaled": lambda scores: scores * factor,
        "capped": lambda scaled: scaled if cap is None else soft_cap(scaled, cap),
        "masked": lambda capped: (capped + added).masked_fill(hidden, -torch.inf),
        "weights": softmax,
        "output": lambda weights: weights @ v.repeat_interleave(group, dim=1),
    }
    new = {step: getattr(steps, step) for step in ORDER}
    new[name] = last = change(new[name])
    for step in ORDER[ORDER.index(name) + 1 :]:
        new[step] = last = computed[step](last)
    return Steps(**new)


@dataclass(frozen=True)
class AblateHead(Edit):
    """One head of one layer adds nothing; counted from 0. part: attention or cross."""

    stack: str
    layer: int
    head: int
    part: str = "attention"

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.part} without head {self.head}"

    def overrides(self) -> tuple[str, ...]:
        return (f"{self.stack}.{self.layer}.{self.part}.mixed",)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def silent(mixed: Tensor) -> Tensor:
            if not 0 <= self.head < mixed.shape[1]:
                raise UsageError(f"head {self.head} is asked for, but there are {mixed.shape[1]}")
            mixed = mixed.clone()
            mixed[:, self.head] = 0.0
            return mixed

        with changed_result(model, graph[self.overrides()[0]], silent):
            yield


@dataclass(frozen=True)
class ReplaceToken(Edit):
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

    def tokens(self, sequence: str, tokens: list[str]) -> list[str]:
        if sequence == self.sequence:
            tokens[self.position] = self.shown or str(self.id)
        return tokens


@dataclass(frozen=True)
class SetValue(Edit):
    """One number of a value: a state, a score, a weight; what follows is computed from it."""

    name: str
    at: tuple[int, ...]
    value: float

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.at))}] = {self.value:g}"

    def overrides(self) -> tuple[str, ...]:
        return (self.name,)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        node = graph[self.name]
        if node.hook_point is None or node.hook_point.place not in ("result", "step"):
            raise UsageError(f"{self.name} cannot be changed; change what it is made from")
        change = changed_result if node.hook_point.place == "result" else changed_step
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


@contextmanager
def changed_result(
    model: nn.Module, node: Node, change: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """What a module gives at the node's call of it is changed."""
    hook_point = node.hook_point
    assert hook_point is not None
    calls = 0

    def hook(module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        return change(result) if calls - 1 == hook_point.call else None

    with hooked([model.get_submodule(hook_point.module).register_forward_hook(hook)]):
        yield


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

    def overrides(self) -> tuple[str, ...]:
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

    def overrides(self) -> tuple[str, ...]:
        return ("*.position", "*.cos", "*.sin", "*.bias")

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def unplaced(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            x, view, *rest = arguments
            seen, unturned = _only(view.mask, adding=False), _not_turning(view.rope)
            return (x, replace(view, mask=seen, rope=unturned), *rest)

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


def _mixes(model: nn.Module) -> list[AttentionCore]:
    return [part for part in model.modules() if isinstance(part, AttentionCore)]
