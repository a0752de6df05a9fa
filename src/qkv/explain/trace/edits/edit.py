"""One change to a pass, put back afterwards; and how hooks come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn
from torch.utils.hooks import RemovableHandle

from qkv.explain.trace.graph import Graph


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

    def tokens(self, sequence: str, tokens: list[str]) -> list[str]:
        """How that is shown."""
        return tokens


def is_touched(name: str, edits: Sequence[Edit], graph: Graph) -> bool:
    """Whether one of these edits sets this node by hand."""
    patterns = (pattern for edit in edits for pattern in edit.touched())
    return any(fnmatchcase(name, graph.aliases.get(each, each)) for each in patterns)


@contextmanager
def hooked(handles: list[RemovableHandle]) -> Iterator[None]:
    """Inside, the hooks are there."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
