"""Many heads in one array: panels with a gap between them, layers down and heads across."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from qkv.errors import UsageError
from qkv.explain.export.grids import Grids
from qkv.explain.trace.operation import Array

WIDE = 9.0  # inches all panels of a row may take together
LARGE, LITTLE = 1.5, 0.5  # inches of a panel
FINE = 160  # cells along a panel; of more, some are shown as one


@dataclass(frozen=True, eq=False)
class Mosaic:
    """The weights of one kind of attention; NaN in the gaps.

    pooled: so many queries by so many keys share a cell, which shows the largest of their weights.
    """

    kind: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Array
    seen: Array
    panel: tuple[int, int]  # cells down and across
    gaps: tuple[int, int]
    pooled: int = 1

    @property
    def rows(self) -> list[float]:
        """The middle of each layer."""
        return [_middle(at, self.panel[0], self.gaps[0]) for at in range(len(self.layers))]

    @property
    def columns(self) -> list[float]:
        """The middle of each head."""
        return [_middle(at, self.panel[1], self.gaps[1]) for at in range(len(self.heads))]

    @property
    def width(self) -> float:
        """Inches."""
        return len(self.heads) * min(LARGE, max(LITTLE, WIDE / len(self.heads)))

    @property
    def height(self) -> float:
        """Inches: cells are square, unless a panel would be very flat or very high."""
        across = self.width / len(self.heads)
        return len(self.layers) * across * min(2.0, max(0.5, self.panel[0] / self.panel[1]))

    @property
    def frames(self) -> list[list[tuple[float, float]]]:
        """A closed line around each panel."""
        half_down, half_across = self.panel[0] / 2, self.panel[1] / 2
        return [
            [
                (x + right * half_across, y + down * half_down)
                for right, down in ((-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1))
            ]
            for y in self.rows
            for x in self.columns
        ]


def mosaics(
    found: list[Grids], layers: Sequence[int] | None, heads: Sequence[int] | None
) -> list[Mosaic]:
    """One for each kind of attention, with those layers and heads of it that are asked for."""
    kinds = groupby(sorted(found, key=lambda grids: grids.kind), key=lambda grids: grids.kind)
    made = [_mosaic(kind, list(of_kind), layers, heads) for kind, of_kind in kinds]
    order = [grids.kind for grids in found]
    there = [mosaic for mosaic in made if mosaic is not None]
    if not there:
        kept = sorted({grids.layer for grids in found})
        raise UsageError(f"layers {list(layers or ())} are asked for, but there are {kept}")
    return sorted(there, key=lambda mosaic: order.index(mosaic.kind))


def _mosaic(
    kind: str, found: list[Grids], layers: Sequence[int] | None, heads: Sequence[int] | None
) -> Mosaic | None:
    chosen = [grids for grids in found if layers is None or grids.layer in layers]
    if not chosen:
        return None
    numbers = tuple(range(len(chosen[0].weights)) if heads is None else heads)
    pooled = -(-max(chosen[0].seen.shape) // FINE)
    T, S = (-(-size // pooled) for size in chosen[0].seen.shape)
    gaps = (max(1, round(0.08 * T)), max(1, round(0.08 * S)))
    size = _size(len(chosen), T, gaps[0]), _size(len(numbers), S, gaps[1])
    weights, seen = np.full(size, np.nan), np.zeros(size, dtype=bool)
    for row, grids in enumerate(chosen):
        for column, head in enumerate(numbers):
            down, across = row * (T + gaps[0]), column * (S + gaps[1])
            place = slice(down, down + T), slice(across, across + S)
            weights[place] = largest(grids.head(head), pooled)
            seen[place] = largest(grids.seen, pooled)
    named = tuple(grids.layer for grids in chosen)
    return Mosaic(kind, named, numbers, weights, seen, (T, S), gaps, pooled)


def largest(grid: Array, pooled: int) -> Array:
    """The largest of each square of so many cells a side; squares at the end may be smaller."""
    for axis in (0, 1):
        starts = np.arange(0, grid.shape[axis], pooled)
        grid = np.maximum.reduceat(grid, starts, axis=axis)
    return grid


def _size(count: int, panel: int, gap: int) -> int:
    return count * panel + (count - 1) * gap


def _middle(at: int, panel: int, gap: int) -> float:
    return at * (panel + gap) + (panel - 1) / 2
