"""The named values of one forward pass, with the operation that made each one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from qkv.errors import UsageError
from qkv.explain.trace.graph import Graph
from qkv.explain.trace.node import Node
from qkv.explain.trace.operation import Array

if TYPE_CHECKING:
    import os

    from qkv.explain.trace.proof import Proof


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Tensor]):
    """Values by name, in the order they were computed; those that were kept.

    rows: of a sequence named there, the queries whose scores, weights and steps between were kept.
    tokens: what stands at each position of each sequence; words: the number of its word, −1 for
    marks. about: where it comes from. edits: what was changed, if this answers a "what if".
    """

    graph: Graph
    kept: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    tokens: Mapping[str, tuple[str, ...]]
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()  # what each number of the answer is called
    edits: tuple[str, ...] = ()
    touched: frozenset[str] = frozenset()  # values that an edit set by hand

    def __getitem__(self, name: str) -> Tensor:
        found = self.graph.name(name)
        if found not in self.kept:
            raise UsageError(f"{name} was not kept; trace again with keep=[{name!r}]")
        return self.kept[found]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.graph.aliases.get(name, name) in self.kept

    def __repr__(self) -> str:
        read = " · ".join(" ".join(tokens) for tokens in self.tokens.values())
        return f"<Trace of {read!r}: {len(self):,} values>"

    def node(self, name: str) -> Node:
        """What made a value, and from what."""
        return self.graph[name]

    def called(self, at: int) -> str:
        """What a number of the answer stands for: a token or a label."""
        return self.outputs[at] if at < len(self.outputs) else f"#{at}"

    def few(self, name: str) -> tuple[int, ...] | None:
        """The queries that were kept of a value; None for all of them."""
        node = self.node(name)
        return self.rows.get(node.along["T"]) if node.by_row else None

    @property
    def nodes(self) -> list[Node]:
        """Those of the values kept, in order."""
        return [self.graph.nodes[name] for name in self.kept]

    @cached_property
    def checks(self) -> tuple[Proof, ...]:
        """What can be proved of these numbers; see `proof`."""
        from qkv.explain.trace.proof import proofs

        return proofs(self)

    def recompute(self, name: str) -> Array:
        """The value once more, from its named inputs in plain NumPy and float64."""
        from qkv.explain.trace.again import recompute

        return recompute(self, name)

    def on_demand(self, name: str, rows: Sequence[int] | None = None) -> Array:
        """A value that was not kept, for these queries, from the nearest values that were.

        keep=["layers"] keeps what enters each layer: enough for any attention, a row at a time.
        """
        from qkv.explain.trace.again import on_demand

        return on_demand(self, name, rows)

    def save(self, path: str | os.PathLike[str], parameters: bool = False) -> None:
        """One safetensors file; with the model's parameters in it, all can be recomputed."""
        from qkv.explain.trace.file import save

        save(self, path, parameters)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trace:
        """What `save` wrote."""
        from qkv.explain.trace.file import load

        return load(path)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        from qkv.explain.page.notebook import mimebundle

        return mimebundle(self)
