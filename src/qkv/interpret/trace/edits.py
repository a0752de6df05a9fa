"""Interventions on a forward pass ("what if"): each edit holds for one pass and is undone after it.

A head is ablated, a token replaced, a number set; or scores are not scaled, nothing is masked, or
positions are not seen. What follows from an edit is computed by the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from qkv.attention import (
    AttentionSteps,
    Mask,
    MaskPart,
    NoRope,
    RopeRotation,
    scale_factor,
    soft_cap,
    softmax,
)
from qkv.errors import UsageError
from qkv.interpret.trace.graph import Graph, Node
from qkv.interpret.trace.operations import ScaleScores
from qkv.model import AttentionCore, Block, Layers

Change = Callable[[Tensor], Tensor]

STEP_ORDER = ("scores", "scaled", "capped", "masked", "weights", "output")


@dataclass(frozen=True)
class Edit:
    """One change to a forward pass; subclasses override what they change."""

    def overrides(self) -> tuple[str, ...]:
        """Patterns for the names of the values that the edit sets instead of the model."""
        return ()

    def revise(self, graph: Graph) -> Graph:
        """The graph with the operations that the edit changes."""
        return graph

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        """Inside, the model computes with the change."""
        yield

    def ids(self, sequence: str, ids: list[int]) -> list[int]:
        """The ids that the model reads instead."""
        return ids

    def tokens(self, sequence: str, tokens: list[str]) -> list[str]:
        """The tokens that belong to those ids."""
        return tokens


def is_overridden(name: str, edits: Sequence[Edit], graph: Graph) -> bool:
    """Whether one of these edits sets this value."""
    for edit in edits:
        for pattern in edit.overrides():
            if fnmatchcase(name, graph.aliases.get(pattern, pattern)):
                return True
    return False


@dataclass(frozen=True)
class AblateHead(Edit):
    """The output of one head of one layer is zero; layers and heads are counted from 0.

    part: "attention" or "cross".
    """

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
        layers = graph.layer_count(self.stack)
        if not 0 <= self.layer < layers:
            raise UsageError(
                f"layer {self.layer} does not exist; the {self.stack} has layers 0 to {layers - 1}"
            )

        def zero_head(mixed: Tensor) -> Tensor:
            heads = mixed.shape[1]
            if not 0 <= self.head < heads:
                raise UsageError(
                    f"head {self.head} does not exist; layer {self.layer} has heads 0 to "
                    f"{heads - 1}"
                )
            # Zero ablation, as in Michel et al. 2019, "Are sixteen heads really better than one?"
            mixed = mixed.clone()
            mixed[:, self.head] = 0.0
            return mixed

        with change_result(model, graph[self.overrides()[0]], zero_head):
            yield


@dataclass(frozen=True)
class ReplaceToken(Edit):
    """Another token at a position of a sequence: its id, and the text it is shown as."""

    position: int
    id: int
    text: str = ""
    sequence: str = "text"

    def __str__(self) -> str:
        return f"{self.text or self.id} at position {self.position} of the {self.sequence}"

    def ids(self, sequence: str, ids: list[int]) -> list[int]:
        if sequence != self.sequence:
            return ids
        if not -len(ids) <= self.position < len(ids):
            raise UsageError(
                f"position {self.position} does not exist; the {sequence} has positions 0 to "
                f"{len(ids) - 1}"
            )
        ids = list(ids)
        ids[self.position] = self.id
        return ids

    def tokens(self, sequence: str, tokens: list[str]) -> list[str]:
        if sequence == self.sequence:
            tokens[self.position] = self.text or str(self.id)
        return tokens


@dataclass(frozen=True)
class SetValue(Edit):
    """One number of a state, a score or a weight; what follows is computed from it."""

    name: str
    index: tuple[int, ...]
    value: float

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.index))}] = {self.value:g}"

    def overrides(self) -> tuple[str, ...]:
        return (self.name,)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        with change_value(model, graph[self.name], self._set):
            yield

    def _set(self, tensor: Tensor) -> Tensor:
        shape = tuple(tensor.shape)
        inside = len(self.index) == len(shape) and all(
            -size <= i < size for i, size in zip(self.index, shape, strict=True)
        )
        if not inside:
            raise UsageError(f"{self.name} has shape {shape}, so there is no index {self.index}")
        tensor = tensor.clone()
        tensor[self.index] = self.value
        return tensor


@dataclass(frozen=True)
class NoScale(Edit):
    """Scores are not divided by √d_k, in any layer."""

    def __str__(self) -> str:
        return "no scale"

    def revise(self, graph: Graph) -> Graph:
        nodes = dict(graph.nodes)
        for name, node in graph.nodes.items():
            if isinstance(node.operation, ScaleScores):
                nodes[name] = replace(node, operation=replace(node.operation, factor=1.0))
        return replace(graph, nodes=nodes)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        cores = _attention_cores(model)
        scales = [core.scale for core in cores]
        for core in cores:
            core.scale = 1.0
        try:
            yield
        finally:
            for core, scale in zip(cores, scales, strict=True):
                core.scale = scale


@dataclass(frozen=True)
class NoMask(Edit):
    """Every query attends to every key; a bias on the scores stays."""

    def __str__(self) -> str:
        return "no mask"

    def overrides(self) -> tuple[str, ...]:
        return ("*.seen",)

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def unmask(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            q, k, v, mask = arguments
            return (q, k, v, Mask(tuple(part for part in mask.parts if _has_bias(part))))

        cores = _attention_cores(model)
        with removing([core.register_forward_pre_hook(unmask) for core in cores]):
            yield


@dataclass(frozen=True)
class NoPosition(Edit):
    """No position is added to embeddings or scores, and no query or key is rotated."""

    def __str__(self) -> str:
        return "no position"

    def overrides(self) -> tuple[str, ...]:
        return ("*.position", "*.cos", "*.sin", "*.bias")

    @contextmanager
    def applied(self, model: nn.Module, graph: Graph) -> Iterator[None]:
        def drop_position(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            x, view, *rest = arguments
            mask = Mask(tuple(part for part in view.mask.parts if not _has_bias(part)))
            view = replace(view, mask=mask, rope=_no_rotation(view.rope))
            return (x, view, *rest)

        handles: list[RemovableHandle] = []
        for module in model.modules():
            if isinstance(module, Block):
                handles.append(module.register_forward_pre_hook(drop_position))
            elif isinstance(module, Layers):
                handles += _skip_position(module)
        with removing(handles):
            yield


@contextmanager
def removing(handles: list[RemovableHandle]) -> Iterator[None]:
    """Remove these hooks at the end of the block."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def change_value(model: nn.Module, node: Node, change: Change) -> AbstractContextManager[None]:
    """Inside, the value of a node is changed; what follows is computed from it."""
    kind = None if node.hook_point is None else node.hook_point.kind
    if kind == "result":
        return change_result(model, node, change)
    if kind == "argument":
        return change_argument(model, node, change)
    if kind == "step":
        return change_step(model, node, change)
    raise UsageError(f"{node.name} cannot be changed; change a value that is computed from it")


@contextmanager
def change_result(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """Inside, the result of the module at the node's hook point is changed."""
    hook_point = node.hook_point
    assert hook_point is not None
    calls = 0

    def hook(module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        return change(result) if calls - 1 == hook_point.call else None

    module = model.get_submodule(hook_point.module)
    with removing([module.register_forward_hook(hook)]):
        yield


@contextmanager
def change_argument(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """Inside, an argument of the module at the node's hook point is changed."""
    hook_point = node.hook_point
    assert hook_point is not None
    index = int(hook_point.key)
    calls = 0

    def hook(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        nonlocal calls
        calls += 1
        if calls - 1 != hook_point.call:
            return None
        return (*arguments[:index], change(arguments[index]), *arguments[index + 1 :])

    module = model.get_submodule(hook_point.module)
    with removing([module.register_forward_pre_hook(hook)]):
        yield


@contextmanager
def change_step(model: nn.Module, node: Node, change: Change) -> Iterator[None]:
    """Inside, one step of attention is changed at the node's hook point; later steps follow."""
    hook_point = node.hook_point
    assert hook_point is not None
    core = model.get_submodule(hook_point.module)
    assert isinstance(core, AttentionCore)
    calls: list[tuple[Tensor, Tensor]] = []  # queries and values of each call

    def before(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        q, _, v, _ = arguments
        calls.append((q, v))

    def hook(
        module: nn.Module, arguments: tuple[Any, ...], steps: AttentionSteps
    ) -> AttentionSteps | None:
        if len(calls) - 1 != hook_point.call:
            return None
        q, v = calls[-1]
        factor = scale_factor(q.shape[-1], core.scale)
        return _recompute_steps(steps, hook_point.key, change, factor, core.cap, v)

    handles = [core.register_forward_pre_hook(before), core.hook_point.register_forward_hook(hook)]
    with removing(handles):
        yield


def _recompute_steps(
    steps: AttentionSteps, name: str, change: Change, factor: float, cap: float | None, v: Tensor
) -> AttentionSteps:
    """The steps before the changed one as they were, those after it computed from it."""
    # Mask and bias are not passed in: they are what the masked scores differ by.
    hidden = steps.masked == -torch.inf
    bias = (steps.masked - steps.capped).masked_fill(hidden, 0.0)
    # Grouped-query attention: so many query heads read one value head (Ainslie et al. 2023).
    group = steps.weights.shape[1] // v.shape[1]
    formulas: dict[str, Change] = {
        "scaled": lambda scores: scores * factor,
        "capped": lambda scaled: scaled if cap is None else soft_cap(scaled, cap),
        "masked": lambda capped: (capped + bias).masked_fill(hidden, -torch.inf),
        "weights": softmax,
        "output": lambda weights: weights @ v.repeat_interleave(group, dim=1),
    }
    values = {step: getattr(steps, step) for step in STEP_ORDER}
    x = change(values[name])
    values[name] = x
    for step in STEP_ORDER[STEP_ORDER.index(name) + 1 :]:
        x = formulas[step](x)
        values[step] = x
    return AttentionSteps(**values)


def _skip_position(stack: Layers) -> list[RemovableHandle]:
    """Hooks that give the embeddings a stack receives to its first norm, without positions."""
    embeddings: list[Tensor] = []

    def remember(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        embeddings[:] = [arguments[0]]

    def restore(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (embeddings[0],)

    return [
        stack.register_forward_pre_hook(remember),
        stack.norm_in.register_forward_pre_hook(restore),
    ]


def _no_rotation(rotation: RopeRotation | NoRope) -> RopeRotation | NoRope:
    """A rotation by an angle of 0 everywhere."""
    if isinstance(rotation, NoRope):
        return rotation
    cos = torch.ones_like(rotation.cos)
    sin = torch.zeros_like(rotation.sin)
    return RopeRotation(cos, sin, rotation.interleaved)


def _has_bias(part: MaskPart) -> bool:
    """Whether this part of a mask adds to the scores; the others only hide keys."""
    return type(part).bias is not MaskPart.bias


def _attention_cores(model: nn.Module) -> list[AttentionCore]:
    return [module for module in model.modules() if isinstance(module, AttentionCore)]
