"""Where heads look, as pictures: all of them side by side, or one with every token and number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qkv.errors import UsageError
from qkv.interpret.export.drawing import Letters, on_paper, save, scale, shade, shortened, sign
from qkv.interpret.lemma import check_image_path
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# FOLDED explain/export/grids: The weights of one attention, head by head, with what each query
#   may see.
# FOLDED explain/export/mosaic: Many heads in one array: panels with a gap between them, layers
#   down and heads across.
# FOLDED explain/export/beside: What stands beside and in the cells of a picture: layers, heads,
#   tokens and numbers.

ENDS = (".attention.weights", ".cross.weights")


@dataclass(frozen=True, eq=False)
class AttentionWeights:
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


def all_attention_weights(trace: Trace) -> list[AttentionWeights]:
    """Of every attention whose weights were kept, in order."""
    names = [name.removesuffix(".weights") for name in trace if name.endswith(ENDS)]
    if not names:
        raise UsageError('no weights were kept; trace again with keep=["*.weights"]')
    return [attention_weights_of(trace, name) for name in names]


def attention_weights_of(trace: Trace, attention: str) -> AttentionWeights:
    """Of one attention by its name in the trace."""
    node = trace.node(f"{attention}.weights")
    weights = to_numpy(trace[node.name])[0]
    _, T, S = weights.shape
    rows = trace.rows.get(node.sequences["T"], tuple(range(T)))
    return AttentionWeights(
        name=attention,
        weights=weights,
        seen=_seen(trace, attention, rows, S) | (weights > 0).any(axis=0),
        rows=rows,
        queries=node.sequences["T"],
        keys=node.sequences["S"],
    )


def _seen(trace: Trace, attention: str, rows: tuple[int, ...], S: int) -> Array:
    """From the mask itself where there is one, kept or not."""
    name = f"{attention}.seen"
    if name not in trace.graph.nodes:
        return np.ones((len(rows), S), dtype=bool)
    if name in trace:
        kept = to_numpy(trace[name])
        return np.asarray(kept.reshape(kept.shape[-2:]), dtype=bool)
    found = trace.node(name).operation.compute(np.array(rows), np.arange(S))
    return np.asarray(found).reshape(len(rows), S) > 0


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
    found: list[AttentionWeights], layers: Sequence[int] | None, heads: Sequence[int] | None
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
    kind: str,
    found: list[AttentionWeights],
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
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


NAMED = 72  # positions up to which each has its token beside it


def lay_out(axes: Axes, part: Mosaic) -> None:
    """Names of layers and heads around a mosaic, and a frame around each panel."""
    from matplotlib.collections import LineCollection

    n, hidden = part.pooled, bool((~part.seen & ~np.isnan(part.weights)).any())
    title = f"{part.kind} · queries ↓ keys →{' · hatched: hidden' * hidden}"
    if n > 1:
        title += f" · each cell the largest weight of {n} × {n}"
    axes.set_title(title, fontsize=9, loc="left", pad=6)
    axes.set_xticks(part.columns, labels=[f"head {head}" for head in part.heads])
    axes.set_yticks(part.rows, labels=[f"layer {layer}" for layer in part.layers])
    axes.tick_params(length=0, labelsize=7, labeltop=True, labelbottom=False, pad=2)
    axes.spines[:].set_visible(False)
    axes.add_collection(LineCollection(part.frames, colors="0.7", linewidths=0.4, clip_on=False))


def name_positions(axes: Axes, grids: AttentionWeights, letters: Letters) -> None:
    """Tokens beside rows and columns; of very many only some, which the axis then says."""
    keys = range(len(letters.tokens[grids.keys]))
    for axis, sequence, places, arrow in (
        (axes.yaxis, grids.queries, grids.rows, "query ↓"),
        (axes.xaxis, grids.keys, keys, "key →"),
    ):
        step = -(-len(places) // NAMED)
        tokens = [shortened(letters.tokens[sequence][at]) for at in places][::step]
        for label in axis.set_ticks(range(0, len(places), step), labels=tokens):
            label.label1.set_parse_math(False)
            label.label2.set_parse_math(False)
        some = "" if step == 1 else f"  (1 of {step} tokens is named)"
        axis.set_label_text(f"{arrow}{some}")
        axis.set_tick_params(length=2, labelsize=8 if len(places) <= 40 else 6)
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    axes.xaxis.set_tick_params(labelrotation=90)


def write_numbers(axes: Axes, weights: Array, seen: Array) -> None:
    """Each weight in its cell, as .27, in ink that its shade lets one read."""
    for (i, j), weight in np.ndenumerate(weights):
        if seen[i, j]:
            shown = "1" if weight >= 0.995 else f"{weight:.2f}".lstrip("0")
            ink = "white" if weight > 0.5 else "0.1" if weight >= 0.05 else "0.45"
            text = "0" if shown == ".00" else shown
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=ink)


NUMBERED = 24  # keys up to which a cell has its number in it

WIDEST = 10.0  # inches of cells


def draw_heads(
    trace: Trace,
    path: str | os.PathLike[str],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> None:
    """All heads side by side, a layer a row, each with its queries down and its keys across."""
    from matplotlib.figure import Figure

    target = Path(path)
    check_image_path(target)
    parts = mosaics(all_attention_weights(trace), layers, heads)
    letters = Letters(trace)
    with on_paper(letters):
        width = max(part.width for part in parts) + 1.2
        tall = [part.height + 0.45 for part in parts]
        figure = Figure(figsize=(max(width, 4.5), sum(tall) + 0.5), layout="constrained")
        below = figure.subplots(len(parts), 1, height_ratios=tall, squeeze=False)[:, 0]
        for part, axes in zip(parts, below, strict=True):
            image = shade(axes, part.weights, part.seen)
            lay_out(axes, part)
        scale(figure, image, list(below))
        sign(figure, letters)
        title = f"{', '.join(part.kind for part in parts)}, head by head"
        save(figure, target, trace, title, layers=_listed(layers), heads=_listed(heads))


def draw_head(
    trace: Trace,
    layer: int,
    head: int,
    path: str | os.PathLike[str],
    attention: str | None = None,
) -> None:
    """One head large, queries down and keys across; layers and heads count from 0.

    attention: "encoder", "decoder" or "cross" where a layer of that number has several.
    """
    from matplotlib.figure import Figure

    target = Path(path)
    check_image_path(target)
    grids = _asked(all_attention_weights(trace), layer, attention)
    weights, letters = grids.head(head), Letters(trace)
    title = f"{grids.kind}, layer {layer}, head {head}"
    T, S = weights.shape
    with on_paper(letters):
        cell = min(0.4, WIDEST / max(T, S))
        size = (max(S * cell + 2.2, 4.5), max(T * cell, 0.8) + 2.0)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        image = shade(axes, weights, grids.seen)
        name_positions(axes, grids, letters)
        if S <= NUMBERED:
            write_numbers(axes, weights, grids.seen)
        figure.suptitle(title, fontsize=11)
        scale(figure, image, axes)
        sign(figure, letters)
        save(figure, target, trace, title, value=f"{grids.name}.weights", head=head)


def _asked(found: list[AttentionWeights], layer: int, attention: str | None) -> AttentionWeights:
    kinds = sorted({grids.kind.removesuffix(" attention") for grids in found})
    kind = attention or ("cross" if "cross" in kinds else kinds[0])
    of_kind = [grids for grids in found if grids.kind == f"{kind} attention"]
    if not of_kind:
        raise UsageError(f'no weights of "{kind}" attention were kept; there are {kinds}')
    for grids in of_kind:
        if grids.layer == layer:
            return grids
    there = ", ".join(str(grids.layer) for grids in of_kind)
    raise UsageError(f"layer {layer} is asked for, but weights were kept of {there}")


def _listed(numbers: Sequence[int] | None) -> str | None:
    return None if numbers is None else ", ".join(map(str, numbers))
