"""A trace: the named values of one forward pass, with the operation that computed each one.

Saved, it is one safetensors file with the graph as JSON in its metadata, so any program that reads
safetensors can use it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from qkv.errors import DataError, UsageError
from qkv.files import atomic_write
from qkv.interpret.trace import recompute
from qkv.interpret.trace.graph import Graph, HookPoint, Node
from qkv.interpret.trace.operations import Array, read_operation
from qkv.interpret.trace.recompute import TraceCheck
from qkv.legacy import upgrade

FORMAT = "qkv-trace-1"
PARAMETER_PREFIX = "parameter:"  # no value's name begins with it
UNKNOWN_TOKEN = "…"
MAX_TEXT_LENGTH = 80  # characters of a text in the short form of a trace


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Tensor]):
    """Captured values by name, in the order they were computed.

    rows: for a sequence named there, the queries whose scores, weights and steps between were
    captured. tokens: the token at each position of each sequence; word_ids: the number of its word,
    −1 for special tokens. metadata: where the trace comes from. output_names: the token or label of
    each logit. edits: what was changed, if the trace answers a "what if"; overrides: the values
    that an edit set instead of the model.
    """

    graph: Graph
    tensors: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    tokens: Mapping[str, tuple[str, ...]]
    word_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()
    overrides: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Tensor:
        node = self.graph.resolve(name)
        if node not in self.tensors:
            raise UsageError(f"{name} was not kept; trace again with keep=[{name!r}]")
        return self.tensors[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    # Mapping's own would call __getitem__, which raises for a value that was not captured.
    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.graph.aliases.get(name, name) in self.tensors

    def __repr__(self) -> str:
        text = " · ".join(" ".join(tokens) for tokens in self.tokens.values())
        if len(text) > MAX_TEXT_LENGTH:
            text = f"{text[:MAX_TEXT_LENGTH]}…"
        tokens = " and ".join(f"{len(tokens):,}" for tokens in self.tokens.values())
        size = sum(tensor.nbytes for tensor in self.values()) / 1e6
        parts = [f"{tokens} tokens", f"{len(self):,} values, {size:,.1f} MB"]
        if self.edits:
            parts.append(f"edited: {'; '.join(self.edits)}")
        lines = [f"<Trace of {text!r}: {', '.join(parts)}"]
        names = [name for name in self if name.endswith("weights")] or list(self)
        if names:
            shape = tuple(self.tensors[names[-1]].shape)
            lines.append(f" list(trace) has all names; trace[{names[-1]!r}] is {shape}")
        return "\n".join(lines) + ">"

    def node(self, name: str) -> Node:
        """The operation that computed a value, and its inputs."""
        return self.graph[name]

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the captured values, in order."""
        return [self.graph.nodes[name] for name in self.tensors]

    def output_name(self, index: int) -> str:
        """The token or label that a logit stands for."""
        if index < len(self.output_names):
            return self.output_names[index]
        return f"#{index}"

    def query_tokens(self, name: str) -> tuple[str, ...]:
        """The token of each query of scores or weights.

        In cross attention it is the one that is written at that step, not the one that is read: the
        next of the target, and after its end the most probable one, if the output was captured.
        """
        sequences = self.node(name).sequences
        tokens = self.tokens[sequences["T"]]
        if sequences.get("S", sequences["T"]) == sequences["T"]:
            return tokens
        last = UNKNOWN_TOKEN
        if "output" in self:
            last = self.output_name(int(self["output"][0, -1].argmax()))
        return (*tokens[1:], last)

    def query_rows(self, name: str) -> tuple[int, ...] | None:
        """The queries that were captured of a value; None for all of them."""
        node = self.node(name)
        return self.rows.get(node.sequences["T"]) if node.by_row else None

    @cached_property
    def checks(self) -> tuple[TraceCheck, ...]:
        """Whether these numbers agree with each other and with the model that answers."""
        return recompute.run_checks(self)

    def recompute(self, name: str) -> Array:
        """The value once more, from its inputs in plain NumPy and float64."""
        return recompute.recompute(self, name)

    def on_demand(self, name: str, rows: Sequence[int] | None = None) -> Array:
        """A value that was not captured, for these queries, from the nearest values that were.

        keep=["layers"] captures what enters each layer: enough for any attention, a row at a time.
        """
        return recompute.on_demand(self, name, rows)

    def save(self, path: str | os.PathLike[str], parameters: bool = False) -> None:
        """Write one safetensors file; with `parameters`, every value in it can be recomputed."""
        tensors = {name: _contiguous_copy(value) for name, value in self.items()}
        if parameters:
            inputs = {name for node in self.nodes for name in node.inputs}
            for name in sorted(inputs & set(self.parameters)):
                tensors[PARAMETER_PREFIX + name] = _contiguous_copy(self.parameters[name])
        metadata = {"format": FORMAT, "trace": json.dumps(_to_json(self), ensure_ascii=False)}
        atomic_write(Path(path), to_bytes(tensors, metadata))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trace:
        """Read what `save` wrote."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise DataError(f"{path} is a safetensors file but holds no trace")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise DataError(f"cannot read a trace from {path}: {error}") from error
        try:
            fields = upgrade("trace", json.loads(_rename_values(metadata["trace"])))
            tensors = {_rename_values(name): tensor for name, tensor in tensors.items()}
            return _from_json(fields, tensors)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the trace in {path} is damaged: {error}") from error

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """The page, for notebooks."""
        from qkv.interpret.page.page_file import mimebundle

        return mimebundle(self)


def _rename_values(text: str) -> str:
    """Names of values that qkv 0.1 called otherwise."""
    return text.replace("attention.query_turned", "attention.query_rotated").replace(
        "attention.key_turned", "attention.key_rotated"
    )


def _to_json(trace: Trace) -> dict[str, Any]:
    return {
        "nodes": [_node_to_json(node) for node in trace.graph],
        "aliases": dict(trace.graph.aliases),
        "stack_inputs": trace.graph.stack_inputs,
        "tokens": trace.tokens,
        "word_ids": trace.word_ids,
        "rows": dict(trace.rows),
        "metadata": dict(trace.metadata),
        "checks": [check.json() for check in trace.checks],
        "output_names": trace.output_names,
        "edits": trace.edits,
        "overrides": sorted(trace.overrides),
        "order": list(trace),
    }


def _from_json(fields: dict[str, Any], tensors: dict[str, Tensor]) -> Trace:
    nodes = [_node_from_json(node) for node in fields["nodes"]]
    parameters = {
        name.removeprefix(PARAMETER_PREFIX): value
        for name, value in tensors.items()
        if name.startswith(PARAMETER_PREFIX)
    }
    return Trace(
        graph=Graph(
            nodes={node.name: node for node in nodes},
            aliases=fields["aliases"],
            stack_inputs=tuple(fields["stack_inputs"]),
        ),
        tensors={name: tensors[name] for name in fields["order"]},
        parameters=parameters,
        tokens={name: tuple(tokens) for name, tokens in fields["tokens"].items()},
        word_ids={name: tuple(numbers) for name, numbers in fields["word_ids"].items()},
        rows={name: tuple(rows) for name, rows in fields["rows"].items()},
        metadata=fields["metadata"],
        output_names=tuple(fields["output_names"]),
        edits=tuple(fields["edits"]),
        overrides=frozenset(fields["overrides"]),
    )


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "operation": node.operation.json(),
        "equation": node.equation,
        "inputs": node.inputs,
        "axes": node.axes,
        "sequences": node.sequences,
        "hook_point": None if node.hook_point is None else asdict(node.hook_point),
    }


def _node_from_json(fields: dict[str, Any]) -> Node:
    hook_point = fields["hook_point"]
    return Node(
        name=fields["name"],
        operation=read_operation(fields["operation"]),
        inputs=tuple(fields["inputs"]),
        axes=tuple(fields["axes"]),
        sequences=fields["sequences"],
        hook_point=None if hook_point is None else HookPoint(**hook_point),
    )


def _contiguous_copy(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own: safetensors writes no views."""
    return tensor.detach().cpu().contiguous().clone()
