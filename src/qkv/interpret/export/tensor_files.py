"""Any value of a trace as a file, in the format of its extension."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qkv.errors import UsageError
from qkv.files import atomic_write, check_output_path, os_error_reason
from qkv.interpret.export.tables import (
    DEFAULT_DIGITS,
    LabeledArray,
    csv_text,
    labeled_array,
    latex_text,
    markdown_text,
    provenance,
)
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy

TENSOR_EXTENSIONS = (".csv", ".npy", ".md", ".tex")


def write_tensor(
    trace: Trace,
    name: str,
    path: str | os.PathLike[str],
    head: int | None = None,
    digits: int = DEFAULT_DIGITS,
) -> tuple[Path, ...]:
    """Write one value, or one head of it; returns the paths of the files written.

    .csv: every digit, with labels along the axes; .npy: the numbers, with the provenance in a JSON
    file next to it, since the format has no metadata; .md and .tex: a table of two axes with this
    many digits.
    """
    target = Path(path)
    check_tensor_path(target)
    node = trace.node(name)
    array = labeled_array(trace, name, head)
    fields = provenance(trace, value=node.name, head=head, equation=node.equation)
    match target.suffix.lower():
        case ".npy":
            values = array.values
            if head is None:
                values = to_numpy(trace[name])  # with its batch axis
            fields["axes"] = " ".join(node.axes[-values.ndim :])
            fields["shape"] = str(values.shape)
            sidecar = target.with_name(f"{target.name}.json")
            return (
                _write(target, _npy_bytes(values)),
                _write(sidecar, _sidecar_bytes(fields, array, node.sequences)),
            )
        case ".csv":
            text = csv_text(array, fields)
        case ".md":
            text = markdown_text(array.table(), fields, digits)
        case _:
            text = latex_text(array.table(), fields, digits)
    return (_write(target, text.encode()),)


def check_tensor_path(path: Path) -> None:
    """Raise a UsageError unless a tensor can be written to the path."""
    check_output_path(path, TENSOR_EXTENSIONS)


def _npy_bytes(values: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values), allow_pickle=False)
    return buffer.getvalue()


def _sidecar_bytes(
    fields: dict[str, str], array: LabeledArray, sequences: Mapping[str, str]
) -> bytes:
    """The provenance, and the tokens along the axes of positions."""
    tokens = {}
    for axis, labels in zip(array.axes, array.labels, strict=True):
        if axis in sequences:
            tokens[axis] = list(labels)
    return f"{json.dumps(fields | {'tokens': tokens}, indent=1)}\n".encode()


def _write(path: Path, content: bytes) -> Path:
    try:
        atomic_write(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {os_error_reason(error)}") from error
    return path
