"""A sweep of activation patches as a picture: layers down, positions or heads across."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qkv.interpret.export.drawing import (
    PictureText,
    add_caption,
    picture_style,
    replace_missing_characters,
    save_picture,
    truncate_token,
)
from qkv.interpret.export.tables import caption, provenance
from qkv.interpret.lemma import check_image_path
from qkv.interpret.matrix import format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from qkv.interpret.patching import PatchSweep

CELL_WIDTH = 0.5  # inches
CELL_HEIGHT = 0.3
MAX_NUMBERED_COLUMNS = 24  # up to so many a cell has its number in it
MAX_WIDTH = 12.0  # inches of all columns
MAX_LABELS = 72  # columns up to which each has its label

# From red (further away from the clean output) over white to blue (the clean output is back).
COLOURS = ("#be3c32", "#ffffff", "#2b74b3")


def draw_sweep(sweep: PatchSweep, path: str | os.PathLike[str]) -> None:
    """The recovered fraction of every patch; the same numbers give the same bytes."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    target = Path(path)
    check_image_path(target)
    text = PictureText(caption(sweep.trace), sweep.trace.tokens)
    recovered = sweep.recovered
    rows, columns = recovered.shape
    # Beyond ±1 a patch overshoots; the scale grows with it, so that no cell is cut off.
    limit = max(1.0, float(np.nanmax(np.abs(recovered), initial=0.0)))
    title = f"activation patching, {sweep.part.replace('_', ' ')}: {sweep.metric}"
    with picture_style(text):
        width = min(columns * CELL_WIDTH, MAX_WIDTH)
        size = (max(width + 2.6, 5.5), max(rows * CELL_HEIGHT, 0.9) + 2.1)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(
            np.ma.masked_invalid(recovered),
            cmap=LinearSegmentedColormap.from_list("qkv-sweep", COLOURS),
            vmin=-limit,
            vmax=limit,
            aspect="auto",
            interpolation="nearest",
        )
        _label_cells(axes, sweep, text)
        bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
        bar.set_label("recovered (1: clean output)", fontsize=7)
        bar.ax.tick_params(length=2, labelsize=7)
        heading = figure.suptitle(replace_missing_characters(title, text.fonts), fontsize=10)
        heading.set_parse_math(False)  # a $ is a dollar
        add_caption(figure, text)
        fields = provenance(
            sweep.trace, clean=sweep.clean_text, metric=sweep.metric, part=sweep.part
        )
        save_picture(figure, target, title, fields)


def _label_cells(axes: Axes, sweep: PatchSweep, text: PictureText) -> None:
    """Activations next to the rows, tokens or heads above the columns, numbers in the cells."""
    axes.set_yticks(range(len(sweep.names)), labels=list(sweep.names))
    step = -(-len(sweep.labels) // MAX_LABELS)
    labels = [
        truncate_token(replace_missing_characters(label, text.fonts)) for label in sweep.labels
    ]
    for tick in axes.set_xticks(range(0, len(labels), step), labels=labels[::step]):
        tick.label1.set_parse_math(False)
        tick.label2.set_parse_math(False)
    axes.xaxis.tick_top()
    axes.tick_params(length=2, labelsize=7)
    axes.xaxis.set_tick_params(labelrotation=90)
    if len(sweep.labels) > MAX_NUMBERED_COLUMNS:
        return
    for (row, column), value in np.ndenumerate(sweep.recovered):
        if np.isnan(value):
            continue
        colour = "white" if abs(value) > 0.7 else "0.2"
        number = format_number(float(value), 2)
        axes.text(column, row, number, ha="center", va="center", fontsize=6, color=colour)
