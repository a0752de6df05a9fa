"""A trace as one safetensors file, with the graph in its metadata: any program can read it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from qkv.errors import DataError
from qkv.explain.trace.graph import Graph
from qkv.explain.trace.node import Node, Pick
from qkv.explain.trace.operation import read_operation
from qkv.explain.trace.trace import Trace
from qkv.files import replace_file

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
        "entries": trace.graph.entries,
        "tokens": trace.tokens,
        "words": trace.words,
        "rows": dict(trace.rows),
        "about": dict(trace.about),
        "checks": [vars(proof) for proof in trace.checks],
        "outputs": trace.outputs,
        "edits": trace.edits,
        "touched": sorted(trace.touched),
        "order": list(trace),
    }
    metadata = {"format": FORMAT, "trace": json.dumps(written, ensure_ascii=False)}
    replace_file(Path(path), to_bytes(tensors, metadata))


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
            {node.name: node for node in nodes}, written["aliases"], tuple(written["entries"])
        ),
        kept={name: tensors[name] for name in written["order"]},
        parameters=parameters,
        tokens={name: tuple(labels) for name, labels in written["tokens"].items()},
        words={name: tuple(numbers) for name, numbers in written["words"].items()},
        rows={name: tuple(rows) for name, rows in written["rows"].items()},
        about=written["about"],
        outputs=tuple(written["outputs"]),
        edits=tuple(written["edits"]),
        touched=frozenset(written["touched"]),
    )


def _node(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "operation": node.operation.json(),
        "equation": node.equation,
        "inputs": node.inputs,
        "axes": node.axes,
        "along": node.along,
        "pick": None if node.pick is None else asdict(node.pick),
    }


def _read_node(written: dict[str, Any]) -> Node:
    pick = written["pick"]
    return Node(
        name=written["name"],
        operation=read_operation(written["operation"]),
        inputs=tuple(written["inputs"]),
        axes=tuple(written["axes"]),
        along=written["along"],
        pick=None if pick is None else Pick(**pick),
    )


def _apart(tensor: Tensor) -> Tensor:
    """Memory of its own: a file holds no views."""
    return tensor.detach().cpu().contiguous().clone()
