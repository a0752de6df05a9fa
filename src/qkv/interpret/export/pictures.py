"""Attention weights as pictures: all heads side by side, or one head with tokens and numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qkv.errors import UsageError
from qkv.interpret.export.drawing import (
    PictureText,
    add_caption,
    add_colorbar,
    draw_weights,
    picture_style,
    save_picture,
    truncate_token,
)
from qkv.interpret.export.tables import caption, provenance
from qkv.interpret.lemma import check_image_path
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array
from qkv.interpret.trace.recompute import to_numpy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WEIGHT_SUFFIXES = (".attention.weights", ".cross.weights")

MAX_GRID_WIDTH = 9.0  # inches of all panels in a row
MAX_PANEL_WIDTH = 1.5  # inches
MIN_PANEL_WIDTH = 0.5
MAX_PANEL_CELLS = 160  # along a side; more are pooled
MAX_HEAD_SIZE = 10.0  # inches of the cells of a single head
MAX_LABELS = 72  # positions up to which each has its token next to it
MAX_NUMBERED_KEYS = 24  # keys up to which a cell has its number in it


def draw_heads(
    trace: Trace,
    path: str | os.PathLike[str],
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> None:
    """All heads side by side, one row per layer, each with its queries down and its keys across."""
    from matplotlib.figure import Figure

    target = Path(path)
    check_image_path(target)
    grids = panel_grids(all_attention_weights(trace), layers, heads)
    text = PictureText(caption(trace), trace.tokens)
    with picture_style(text):
        width = max(grid.width for grid in grids) + 1.2
        heights = [grid.height + 0.45 for grid in grids]
        figure = Figure(figsize=(max(width, 4.5), sum(heights) + 0.5), layout="constrained")
        column = figure.subplots(len(grids), 1, height_ratios=heights, squeeze=False)[:, 0]
        for grid, axes in zip(grids, column, strict=True):
            image = draw_weights(axes, grid.weights, grid.seen)
            _label_panels(axes, grid)
        add_colorbar(figure, image, list(column))
        add_caption(figure, text)
        title = f"{', '.join(grid.kind for grid in grids)}, head by head"
        fields = provenance(trace, layers=_comma_separated(layers), heads=_comma_separated(heads))
        save_picture(figure, target, title, fields)


def draw_head(
    trace: Trace,
    layer: int,
    head: int,
    path: str | os.PathLike[str],
    attention: str | None = None,
) -> None:
    """One head large, queries down and keys across; layers and heads are counted from 0.

    attention: "encoder", "decoder" or "cross" where a layer of that number has several.
    """
    from matplotlib.figure import Figure

    target = Path(path)
    check_image_path(target)
    layer_weights = _select_layer(all_attention_weights(trace), layer, attention)
    weights = layer_weights.head(head)
    text = PictureText(caption(trace), trace.tokens)
    title = f"{layer_weights.kind}, layer {layer}, head {head}"
    T, S = weights.shape
    with picture_style(text):
        cell = min(0.4, MAX_HEAD_SIZE / max(T, S))
        size = (max(S * cell + 2.2, 4.5), max(T * cell, 0.8) + 2.0)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        image = draw_weights(axes, weights, layer_weights.seen)
        _label_positions(axes, layer_weights, text)
        if S <= MAX_NUMBERED_KEYS:
            _write_numbers(axes, weights, layer_weights.seen)
        figure.suptitle(title, fontsize=11)
        add_colorbar(figure, image, axes)
        add_caption(figure, text)
        fields = provenance(trace, value=f"{layer_weights.name}.weights", head=head)
        save_picture(figure, target, title, fields)


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights (H, T, S) of one attention, as in decoder.0.attention, and its mask (T, S).

    rows: the positions of the queries, which are some of them where only some were captured.
    queries, keys: the names of the sequences. query_tokens: the label of each position.
    """

    name: str
    weights: Array
    seen: Array
    rows: tuple[int, ...]
    queries: str
    keys: str
    query_tokens: tuple[str, ...]

    @property
    def stack(self) -> str:
        return self.name.split(".")[0]

    @property
    def layer(self) -> int:
        return int(self.name.split(".")[1])

    @property
    def kind(self) -> str:
        """ "encoder attention", "decoder attention" or "cross attention"."""
        if self.name.endswith(".cross"):
            return "cross attention"
        return f"{self.stack} attention"

    def head(self, number: int) -> Array:
        """The weights of one head, (T, S)."""
        if not 0 <= number < len(self.weights):
            last = len(self.weights) - 1
            raise UsageError(f"head {number} is out of range: {self.name} has heads 0 to {last}")
        weights: Array = self.weights[number]
        return weights


def all_attention_weights(trace: Trace) -> list[AttentionWeights]:
    """Those of every attention whose weights were captured, in order."""
    names = [name.removesuffix(".weights") for name in trace if name.endswith(WEIGHT_SUFFIXES)]
    if not names:
        raise UsageError('no weights were kept; trace again with keep=["*.weights"]')
    return [attention_weights_of(trace, name) for name in names]


def attention_weights_of(trace: Trace, attention: str) -> AttentionWeights:
    """Those of one attention by its name in the trace."""
    node = trace.node(f"{attention}.weights")
    weights = to_numpy(trace[node.name])[0]
    _, T, S = weights.shape
    rows = trace.rows.get(node.sequences["T"], tuple(range(T)))
    return AttentionWeights(
        name=attention,
        weights=weights,
        # An edit may unmask keys that the model's own mask hides.
        seen=_mask_of(trace, attention, rows, S) | (weights > 0).any(axis=0),
        rows=rows,
        queries=node.sequences["T"],
        keys=node.sequences["S"],
        query_tokens=trace.query_tokens(node.name),
    )


def _mask_of(trace: Trace, attention: str, rows: tuple[int, ...], S: int) -> Array:
    """The mask (T, S): captured, or recomputed from the positions; True without a mask."""
    name = f"{attention}.seen"
    if name not in trace.graph.nodes:
        return np.ones((len(rows), S), dtype=bool)
    if name in trace:
        mask = to_numpy(trace[name])
        return np.asarray(mask.reshape(mask.shape[-2:]), dtype=bool)
    mask = trace.node(name).operation.compute(np.array(rows), np.arange(S))
    return np.asarray(mask).reshape(len(rows), S) > 0


@dataclass(frozen=True, eq=False)
class PanelGrid:
    """All heads of one kind of attention in one array: layers down, heads across, gaps of NaN.

    pooled: so many queries by so many keys share a cell, which shows their largest weight.
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
        return _middles(len(self.layers), self.panel[0], self.gaps[0])

    @property
    def columns(self) -> list[float]:
        """The middle of each head."""
        return _middles(len(self.heads), self.panel[1], self.gaps[1])

    @property
    def width(self) -> float:
        """In inches."""
        panel = min(MAX_PANEL_WIDTH, max(MIN_PANEL_WIDTH, MAX_GRID_WIDTH / len(self.heads)))
        return len(self.heads) * panel

    @property
    def height(self) -> float:
        """In inches: cells are square, unless a panel would be very flat or very high."""
        across = self.width / len(self.heads)
        return len(self.layers) * across * min(2.0, max(0.5, self.panel[0] / self.panel[1]))

    @property
    def frames(self) -> list[list[tuple[float, float]]]:
        """A closed line around each panel."""
        half_height = self.panel[0] / 2
        half_width = self.panel[1] / 2
        corners = ((-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1))
        frames = []
        for y in self.rows:
            for x in self.columns:
                frames.append([(x + dx * half_width, y + dy * half_height) for dx, dy in corners])
        return frames


def panel_grids(
    attentions: list[AttentionWeights],
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
) -> list[PanelGrid]:
    """One grid for each kind of attention, with these layers and heads of it (None: all)."""
    by_kind: dict[str, list[AttentionWeights]] = {}
    for attention in attentions:
        if layers is None or attention.layer in layers:
            by_kind.setdefault(attention.kind, []).append(attention)
    if not by_kind:
        available = sorted({attention.layer for attention in attentions})
        raise UsageError(
            f"no weights of layers {list(layers or ())} were kept, only of {available}"
        )
    return [_panel_grid(kind, of_kind, heads) for kind, of_kind in by_kind.items()]


def _panel_grid(
    kind: str, attentions: list[AttentionWeights], heads: Sequence[int] | None
) -> PanelGrid:
    if heads is None:
        heads = range(len(attentions[0].weights))
    numbers = tuple(heads)
    shape = attentions[0].seen.shape
    pooled = -(-max(shape) // MAX_PANEL_CELLS)
    T, S = (-(-size // pooled) for size in shape)
    # Gaps of 8 % of a panel look alike for short and long texts.
    gaps = (max(1, round(0.08 * T)), max(1, round(0.08 * S)))
    size = (
        len(attentions) * T + (len(attentions) - 1) * gaps[0],
        len(numbers) * S + (len(numbers) - 1) * gaps[1],
    )
    weights = np.full(size, np.nan)
    seen = np.zeros(size, dtype=bool)
    for row, attention in enumerate(attentions):
        for column, head in enumerate(numbers):
            top = row * (T + gaps[0])
            left = column * (S + gaps[1])
            panel = (slice(top, top + T), slice(left, left + S))
            weights[panel] = max_pool_square(attention.head(head), pooled)
            seen[panel] = max_pool_square(attention.seen, pooled)
    layers = tuple(attention.layer for attention in attentions)
    return PanelGrid(kind, layers, numbers, weights, seen, (T, S), gaps, pooled)


def max_pool_square(grid: Array, side: int) -> Array:
    """The largest of each square of cells; squares at the end may be smaller."""
    for axis in (0, 1):
        starts = np.arange(0, grid.shape[axis], side)
        grid = np.maximum.reduceat(grid, starts, axis=axis)
    return grid


def _middles(count: int, panel: int, gap: int) -> list[float]:
    return [i * (panel + gap) + (panel - 1) / 2 for i in range(count)]


def _label_panels(axes: Axes, grid: PanelGrid) -> None:
    """Names of layers and heads around the grid, and a frame around each panel."""
    from matplotlib.collections import LineCollection

    queries = "words written" if grid.kind == "cross attention" else "queries"
    title = f"{grid.kind} · {queries} ↓ keys →"
    if (~grid.seen & ~np.isnan(grid.weights)).any():
        title += " · hatched: hidden"
    if grid.pooled > 1:
        title += f" · each cell the largest weight of {grid.pooled} × {grid.pooled}"
    axes.set_title(title, fontsize=9, loc="left", pad=6)
    axes.set_xticks(grid.columns, labels=[f"head {head}" for head in grid.heads])
    axes.set_yticks(grid.rows, labels=[f"layer {layer}" for layer in grid.layers])
    axes.tick_params(length=0, labelsize=7, labeltop=True, labelbottom=False, pad=2)
    axes.spines[:].set_visible(False)
    axes.add_collection(LineCollection(grid.frames, colors="0.7", linewidths=0.4, clip_on=False))


def _label_positions(axes: Axes, attention: AttentionWeights, text: PictureText) -> None:
    """Tokens next to rows and columns; of very many only some, and the axis tells how many."""
    query_name = "query ↓"
    if attention.kind == "cross attention":
        query_name = "word written ↓"
    query_tokens = text.labels(attention.query_tokens)
    keys = text.tokens[attention.keys]
    for axis, labels, positions, name in (
        (axes.yaxis, query_tokens, attention.rows, query_name),
        (axes.xaxis, keys, range(len(keys)), "key →"),
    ):
        step = -(-len(positions) // MAX_LABELS)
        tokens = [truncate_token(labels[position]) for position in positions]
        for tick in axis.set_ticks(range(0, len(positions), step), labels=tokens[::step]):
            tick.label1.set_parse_math(False)  # a $ is a dollar
            tick.label2.set_parse_math(False)
        if step > 1:
            name += f"  (1 of {step} tokens is named)"
        axis.set_label_text(name)
        size = 8
        if len(positions) > 40:
            size = 6
        axis.set_tick_params(length=2, labelsize=size)
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    axes.xaxis.set_tick_params(labelrotation=90)


def _write_numbers(axes: Axes, weights: Array, seen: Array) -> None:
    """Each weight in its cell, as .27, in a colour that its background lets one read."""
    for (i, j), weight in np.ndenumerate(weights):
        if not seen[i, j]:
            continue
        if weight > 0.5:
            colour = "white"
        elif weight >= 0.05:
            colour = "0.1"
        else:
            colour = "0.45"
        text = _short_number(float(weight))
        axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=colour)


def _short_number(weight: float) -> str:
    if weight >= 0.995:
        return "1"
    if weight < 0.005:
        return "0"
    return f"{weight:.2f}".lstrip("0")


def _select_layer(
    attentions: list[AttentionWeights], layer: int, attention: str | None
) -> AttentionWeights:
    kinds = sorted({each.kind.removesuffix(" attention") for each in attentions})
    kind = attention
    if kind is None:
        kind = "cross" if "cross" in kinds else kinds[0]
    of_kind = [each for each in attentions if each.kind == f"{kind} attention"]
    if not of_kind:
        raise UsageError(f'no weights of "{kind}" attention were kept; there are {kinds}')
    for each in of_kind:
        if each.layer == layer:
            return each
    available = ", ".join(str(each.layer) for each in of_kind)
    raise UsageError(f"no weights of layer {layer} were kept, only of {available}")


def _comma_separated(numbers: Sequence[int] | None) -> str | None:
    if numbers is None:
        return None
    return ", ".join(map(str, numbers))
