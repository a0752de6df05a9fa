"""The named values of one forward pass, with the operation that made each one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from qkv.errors import DataError, UsageError
from qkv.files import atomic_write
from qkv.interpret.trace.graph import Graph, HookPoint, Node
from qkv.interpret.trace.operations import Array, read_operation

if TYPE_CHECKING:
    import os

    from qkv.interpret.trace.recompute import TraceCheck

# FOLDED explain/trace/file: A trace as one safetensors file, with the graph in its metadata:
#   any program can read it.


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Tensor]):
    """Values by name, in the order they were computed; those that were kept.

    rows: of a sequence named there, the queries whose scores, weights and steps between were kept.
    tokens: what stands at each position of each sequence; words: the number of its word, −1 for
    marks. about: where it comes from. edits: what was changed, if this answers a "what if".
    """

    graph: Graph
    tensors: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    tokens: Mapping[str, tuple[str, ...]]
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()  # what each number of the answer is called
    edits: tuple[str, ...] = ()
    overrides: frozenset[str] = frozenset()  # values that an edit set by hand

    def __getitem__(self, name: str) -> Tensor:
        found = self.graph.resolve(name)
        if found not in self.tensors:
            raise UsageError(f"{name} was not kept; trace again with keep=[{name!r}]")
        return self.tensors[found]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.graph.aliases.get(name, name) in self.tensors

    def __repr__(self) -> str:
        read = " · ".join(" ".join(tokens) for tokens in self.tokens.values())
        return f"<Trace of {read!r}: {len(self):,} values>"

    def node(self, name: str) -> Node:
        """What made a value, and from what."""
        return self.graph[name]

    def output_name(self, index: int) -> str:
        """What a number of the answer stands for: a token or a label."""
        return self.output_names[index] if index < len(self.output_names) else f"#{index}"

    def query_rows(self, name: str) -> tuple[int, ...] | None:
        """The queries that were kept of a value; None for all of them."""
        node = self.node(name)
        return self.rows.get(node.sequences["T"]) if node.by_row else None

    @property
    def nodes(self) -> list[Node]:
        """Those of the values kept, in order."""
        return [self.graph.nodes[name] for name in self.tensors]

    @cached_property
    def checks(self) -> tuple[TraceCheck, ...]:
        """What can be proved of these numbers; see `proof`."""
        from qkv.interpret.trace.recompute import proofs

        return proofs(self)

    def recompute(self, name: str) -> Array:
        """The value once more, from its named inputs in plain NumPy and float64."""
        from qkv.interpret.trace.recompute import recompute

        return recompute(self, name)

    def on_demand(self, name: str, rows: Sequence[int] | None = None) -> Array:
        """A value that was not kept, for these queries, from the nearest values that were.

        keep=["layers"] keeps what enters each layer: enough for any attention, a row at a time.
        """
        from qkv.interpret.trace.recompute import on_demand

        return on_demand(self, name, rows)

    def save(self, path: str | os.PathLike[str], parameters: bool = False) -> None:
        """One safetensors file; with the model's parameters in it, all can be recomputed."""

        save(self, path, parameters)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trace:
        """What `save` wrote."""

        return load(path)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        from qkv.interpret.page.page_file import mimebundle

        return mimebundle(self)


FORMAT = "qkv-trace-1"

PARAMETER = "parameter:"  # before the names of parameters, so that no value can have one


def save(trace: Trace, path: str | os.PathLike[str], parameters: bool = False) -> None:
    """The values kept; with `parameters` also every parameter that one of them is made with."""
    tensors = {name: _apart(value) for name, value in trace.items()}
    if parameters:
        used = {given for node in trace.nodes for given in node.inputs} & set(trace.parameters)
        tensors |= {PARAMETER + name: _apart(trace.parameters[name]) for name in sorted(used)}
    written = {
        "nodes": [_node(node) for node in trace.graph],
        "aliases": dict(trace.graph.aliases),
        "stack_inputs": trace.graph.stack_inputs,
        "tokens": trace.tokens,
        "words": trace.words,
        "rows": dict(trace.rows),
        "about": dict(trace.metadata),
        "checks": [vars(proof) for proof in trace.checks],
        "outputs": trace.output_names,
        "edits": trace.edits,
        "touched": sorted(trace.overrides),
        "order": list(trace),
    }
    metadata = {"format": FORMAT, "trace": json.dumps(written, ensure_ascii=False)}
    atomic_write(Path(path), to_bytes(tensors, metadata))


def load(path: str | os.PathLike[str]) -> Trace:
    """The trace that was saved there."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise DataError(f"{path} is a safetensors file but holds no trace")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot read a trace from {path}: {error}") from error
    try:
        return _trace(json.loads(metadata["trace"]), tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the trace in {path} is damaged: {error}") from error


def _trace(written: dict[str, Any], tensors: dict[str, Tensor]) -> Trace:
    nodes = [_read_node(node) for node in written["nodes"]]
    parameters = {
        name.removeprefix(PARAMETER): value
        for name, value in tensors.items()
        if name.startswith(PARAMETER)
    }
    return Trace(
        graph=Graph(
            {node.name: node for node in nodes}, written["aliases"], tuple(written["stack_inputs"])
        ),
        tensors={name: tensors[name] for name in written["order"]},
        parameters=parameters,
        tokens={name: tuple(labels) for name, labels in written["tokens"].items()},
        words={name: tuple(numbers) for name, numbers in written["words"].items()},
        rows={name: tuple(rows) for name, rows in written["rows"].items()},
        metadata=written["about"],
        output_names=tuple(written["outputs"]),
        edits=tuple(written["edits"]),
        overrides=frozenset(written["touched"]),
    )


def _node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "operation": node.operation.json(),
        "equation": node.equation,
        "inputs": node.inputs,
        "axes": node.axes,
        "along": node.sequences,
        "hook_point": None if node.hook_point is None else asdict(node.hook_point),
    }


def _read_node(written: dict[str, Any]) -> Node:
    hook_point = written["hook_point"]
    return Node(
        name=written["name"],
        operation=read_operation(written["operation"]),
        inputs=tuple(written["inputs"]),
        axes=tuple(written["axes"]),
        sequences=written["along"],
        hook_point=None if hook_point is None else HookPoint(**hook_point),
    )


def _apart(tensor: Tensor) -> Tensor:
    """Memory of its own: a file holds no views."""
    return tensor.detach().cpu().contiguous().clone()
