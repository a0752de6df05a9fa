"""The weights of one attention, head by head, with what each query may see."""

from dataclasses import dataclass

import numpy as np

from qkv.errors import UsageError
from qkv.explain.trace import Trace
from qkv.explain.trace.again import numpy
from qkv.explain.trace.operation import Array

ENDS = (".attention.weights", ".cross.weights")


@dataclass(frozen=True, eq=False)
class Grids:
    """name: as in decoder.0.attention; weights (H, T, S); seen (T, S) bool.

    rows: the positions of the queries, which are not all of them where only some were kept.
    """

    name: str
    weights: Array
    seen: Array
    rows: tuple[int, ...]
    queries: str  # the sequences
    keys: str

    @property
    def stack(self) -> str:
        return self.name.split(".")[0]

    @property
    def layer(self) -> int:
        return int(self.name.split(".")[1])

    @property
    def kind(self) -> str:
        """What it is, without its layer."""
        return "cross attention" if self.name.endswith(".cross") else f"{self.stack} attention"

    def head(self, number: int) -> Array:
        """The weights of one head, (T, S)."""
        if not 0 <= number < len(self.weights):
            raise UsageError(
                f"head {number} is asked for, but {self.name} has heads 0 to "
                f"{len(self.weights) - 1}"
            )
        grid: Array = self.weights[number]
        return grid


def all_grids(trace: Trace) -> list[Grids]:
    """Of every attention whose weights were kept, in order."""
    names = [name.removesuffix(".weights") for name in trace if name.endswith(ENDS)]
    if not names:
        raise UsageError('no weights were kept; trace again with keep=["*.weights"]')
    return [grids_of(trace, name) for name in names]


def grids_of(trace: Trace, attention: str) -> Grids:
    """Of one attention by its name in the trace."""
    node = trace.node(f"{attention}.weights")
    weights = numpy(trace[node.name])[0]
    _, T, S = weights.shape
    rows = trace.rows.get(node.along["T"], tuple(range(T)))
    return Grids(
        name=attention,
        weights=weights,
        seen=_seen(trace, attention, rows, S) | (weights > 0).any(axis=0),
        rows=rows,
        queries=node.along["T"],
        keys=node.along["S"],
    )


def _seen(trace: Trace, attention: str, rows: tuple[int, ...], S: int) -> Array:
    """From the mask itself where there is one, kept or not."""
    name = f"{attention}.seen"
    if name not in trace.graph.nodes:
        return np.ones((len(rows), S), dtype=bool)
    if name in trace:
        kept = numpy(trace[name])
        return np.asarray(kept.reshape(kept.shape[-2:]), dtype=bool)
    found = trace.node(name).operation.compute(np.array(rows), np.arange(S))
    return np.asarray(found).reshape(len(rows), S) > 0
