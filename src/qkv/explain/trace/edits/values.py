"""What if a head were off, another token stood there, or a number were another one?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from qkv.errors import UsageError
from qkv.explain.trace.edits.edit import Edit, hooked
from qkv.explain.trace.edits.steps import changed_step
from qkv.explain.trace.graph import Graph
from qkv.explain.trace.node import Node


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

        with changed_result(model, graph[self.touched()[0]], silent):
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

    def tokens(self, sequence: str, tokens: list[str]) -> list[str]:
        if sequence == self.sequence:
            tokens[self.position] = self.shown or str(self.id)
        return tokens


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
        change = changed_result if node.pick.place == "result" else changed_step
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
    pick = node.pick
    assert pick is not None
    calls = 0

    def hook(module: nn.Module, arguments: tuple[Any, ...], result: Tensor) -> Tensor | None:
        nonlocal calls
        calls += 1
        return change(result) if calls - 1 == pick.call else None

    with hooked([model.get_submodule(pick.module).register_forward_hook(hook)]):
        yield
