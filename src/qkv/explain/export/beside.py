"""What stands beside and in the cells of a picture: layers, heads, tokens and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qkv.explain.export.drawing import Letters
from qkv.explain.export.grids import Grids
from qkv.explain.export.lettering import shortened
from qkv.explain.export.mosaic import Mosaic
from qkv.explain.trace.operation import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def name_positions(axes: Axes, grids: Grids, letters: Letters) -> None:
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
