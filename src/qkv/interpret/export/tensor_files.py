"""Any value of a trace as a file, in the form that its ending names."""

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qkv.errors import UsageError
from qkv.files import atomic_write, os_error_reason
from qkv.interpret.export.tables import (
    DIGITS,
    Cube,
    csv_text,
    cube,
    latex_text,
    markdown_text,
    provenance,
)
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy

ENDINGS = (".csv", ".npy", ".md", ".tex")


def write_tensor(
    trace: Trace,
    name: str,
    path: str | os.PathLike[str],
    head: int | None = None,
    digits: int = DIGITS,
) -> tuple[Path, ...]:
    """Write one value, or one head of it, and give the files that were made.

    .csv: every digit, names along the axes; .npy: the numbers as they are, with the provenance in
    a second file beside it, as that format has no place for words; .md and .tex: a table of two
    axes, rounded to so many digits.
    """
    target = Path(path)
    check_ending(target)
    node, found = trace.node(name), cube(trace, name, head)
    told = provenance(trace, value=node.name, head=head, equation=node.equation)
    if target.suffix.lower() == ".npy":
        values = to_numpy(trace[name]) if head is None else found.values
        told |= {"axes": " ".join(node.axes[-values.ndim :]), "shape": str(values.shape)}
        beside = target.with_name(f"{target.name}.json")
        return _write(target, _npy(values)), _write(beside, _words(told, found, node.sequences))
    if target.suffix.lower() == ".csv":
        text = csv_text(found, told)
    elif target.suffix.lower() == ".md":
        text = markdown_text(found.sheet(), told, digits)
    else:
        text = latex_text(found.sheet(), told, digits)
    return (_write(target, text.encode()),)


def check_ending(path: Path) -> None:
    """The path must end in a form that numbers can be written in, in a folder that exists."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f'cannot write "{path.name}"; end it with one of {", ".join(ENDINGS)}')
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder; make it first")


def _npy(values: Array) -> bytes:
    written = io.BytesIO()
    np.save(written, np.ascontiguousarray(values), allow_pickle=False)
    return written.getvalue()


def _words(told: dict[str, str], found: Cube, along: Mapping[str, str]) -> bytes:
    """The provenance, and what stands at each place of the axes that run along a text."""
    named = zip(found.axes, found.names, strict=True)
    tokens = {axis: list(names) for axis, names in named if axis in along}
    return f"{json.dumps(told | {'tokens': tokens}, indent=1)}\n".encode()


def _write(path: Path, content: bytes) -> Path:
    try:
        atomic_write(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {os_error_reason(error)}") from error
    return path
