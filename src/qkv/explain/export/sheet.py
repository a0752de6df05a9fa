"""A value of a trace as a sheet: two axes, each place with a name."""

from dataclasses import dataclass

import numpy as np

from qkv.errors import UsageError
from qkv.explain.matrix import labels
from qkv.explain.trace import Trace
from qkv.explain.trace.again import numpy
from qkv.explain.trace.operation import Array

_ONE = ("value",)
BY_HEAD = ("H", "K")  # axes of heads, and of key/value heads


@dataclass(frozen=True, eq=False)
class Sheet:
    """The numbers of one text, (rows, columns), and what its rows and columns are."""

    title: str
    axes: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Array


@dataclass(frozen=True, eq=False)
class Cube:
    """Numbers along any axes but that of the batch, with the names of the places on each."""

    title: str
    axes: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    values: Array

    @property
    def flat(self) -> bool:
        """Whether it is a sheet."""
        return len(self.axes) <= 2

    def sheet(self) -> Sheet:
        """Rows and columns; a single axis goes down."""
        if not self.flat:
            raise UsageError(
                f"{self.title} has the axes {', '.join(self.axes)}, but a table has two; choose "
                f"one of its {len(self.names[0])} heads"
            )
        axes, names, values = self.axes, self.names, self.values
        while len(axes) < 2:
            axes, names, values = (*axes, "value"), (*names, _ONE), values[..., None]
        return Sheet(self.title, (axes[0], axes[1]), names[0], names[1], values)


def cube(trace: Trace, name: str, head: int | None = None) -> Cube:
    """A value without its batch, of one head if that is asked for; heads count from 0."""
    node, values = trace.node(name), numpy(trace[name])
    axes = node.axes[-values.ndim :]  # what is the same for every text may have no axis of them
    while values.ndim > len(axes) and values.shape[0] == 1:
        values = values[0]
    if axes[:1] == ("B",):
        axes, values = axes[1:], values[0]
    names = [_names(trace, name, axis, size) for axis, size in zip(axes, values.shape, strict=True)]
    title = node.name
    if head is not None:
        if axes[:1] not in [(axis,) for axis in BY_HEAD]:
            raise UsageError(f"{node.name} has the axes {', '.join(axes)}: there is no head in it")
        if not 0 <= head < len(values):
            raise UsageError(
                f"head {head} is asked for, but {node.name} has heads 0 to {len(values) - 1}"
            )
        title, axes, names, values = f"{title}, head {head}", axes[1:], names[1:], values[head]
    return Cube(title, axes, tuple(names), values)


def number(value: np.generic) -> str:
    """As few digits as give the same number again; −∞ and NaN as Python and NumPy read them."""
    return str(int(value)) if isinstance(value, np.bool_) else str(value)


def _names(trace: Trace, name: str, axis: str, size: int) -> tuple[str, ...]:
    """Tokens along a text, what the model's answers are called, and numbers along anything else."""
    node = trace.node(name)
    if axis in node.along:
        tokens = labels(trace.tokens[node.along[axis]])
        rows = trace.few(name) if axis == "T" else None
        return tokens if rows is None else tuple(tokens[row] for row in rows)
    if axis == "label":
        return labels([trace.called(i) for i in range(size)])
    if axis == "V":
        return tuple(f"{i} {_on_one_line(trace.called(i))}" for i in range(size))
    return tuple(f"{axis}{i}" for i in range(size))


def _on_one_line(token: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)
