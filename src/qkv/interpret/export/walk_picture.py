"""A walk as one picture: every step a table of coloured cells with its numbers, in order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len  # counts 詩 as two

from qkv.interpret.export.drawing import (
    CAPTION_COLOUR,
    HIDDEN_COLOUR,
    PictureText,
    picture_style,
    save_picture,
    truncate_token,
)
from qkv.interpret.matrix import Matrix
from qkv.interpret.render import BLANK, StepSection, WalkView, sections
from qkv.interpret.trace.operations import Array
from qkv.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# All sizes are in inches.
PAGE_WIDTH = 9.6
MARGIN = 0.3
GAP = 0.45  # between panels
TITLE_HEIGHT = 0.62  # the step's title, its equation, and the labels of the columns
CELL_HEIGHT = 0.27
CHARACTER = 0.083  # the width of a character in a table
TITLE_CHARACTER = 0.125  # … and in the title
MAX_NUMBERED = 24  # rows and columns up to which a cell has its number in it
MAX_GRID = 7.0  # the side of a matrix without numbers

POSITIVE = (0.122, 0.306, 0.549)
NEGATIVE = (0.761, 0.333, 0.122)
MAX_OPACITY = 0.6
MARK_NOTES = {
    "~": "~ computed from unrounded numbers; the shown ones give another last digit",
    "✗": "✗ a wrong answer",
}


@dataclass(frozen=True)
class Panel:
    """One step and its position on the page, from the upper left corner."""

    section: StepSection
    left: float
    top: float

    @property
    def numbered(self) -> bool:
        """Whether the cells are large enough for their numbers."""
        table = self.section.table
        return max(len(table.rows), len(table.columns)) <= MAX_NUMBERED

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell."""
        table = self.section.table
        rows = len(table.rows)
        columns = len(table.columns)
        if not self.numbered:
            side = MAX_GRID / max(rows, columns)
            return side, side
        texts = [truncate_token(label) for label in table.columns]
        for row in table.cells:
            texts += row
        return max(map(cell_len, texts)) * CHARACTER + 0.16, CELL_HEIGHT

    @property
    def label_width(self) -> float:
        labels = [truncate_token(label) for label in self.section.table.rows]
        return max(map(cell_len, labels)) * CHARACTER + 0.12

    @property
    def width(self) -> float:
        grid = self.label_width + self.cell[0] * len(self.section.table.columns)
        heading = (f"{self.section.number}. {self.section.step.title}", self.section.step.equation)
        return max(grid, max(map(cell_len, heading)) * CHARACTER)

    @property
    def height(self) -> float:
        return TITLE_HEIGHT + self.cell[1] * len(self.section.table.rows)


def draw_walk(view: WalkView, path: Path) -> None:
    """Write the picture in the format of the path's suffix."""
    from matplotlib.figure import Figure

    panels = arrange_panels(sections(view))
    width = max(panel.left + panel.width for panel in panels) + MARGIN
    width = max(width, cell_len(view.walk.title) * TITLE_CHARACTER + 2 * MARGIN)
    bottom = max(panel.top + panel.height for panel in panels)
    notes = _notes(panels)
    height = bottom + MARGIN + 0.16 * (len(notes) + 1)
    text = PictureText("", {"texts": _texts(view, panels)})
    printable = dict(zip(_texts(view, panels), text.tokens["texts"], strict=True))
    with picture_style(text):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.axis("off")
        _write(axes, MARGIN, MARGIN + 0.1, printable[view.walk.title], size=13, weight="bold")
        for panel in panels:
            _draw_panel(axes, panel, view, printable)
        for line, note in enumerate([*notes, f"qkv {__version__}"]):
            y = bottom + 0.24 + 0.16 * line
            _write(axes, MARGIN, y, note, size=6.5, color=CAPTION_COLOUR)
        save_picture(figure, path, view.walk.title, {"qkv": __version__})


def arrange_panels(steps: list[StepSection]) -> list[Panel]:
    """The panels from left to right, in as many rows as the page's width makes of them."""
    panels: list[Panel] = []
    left = MARGIN
    top = MARGIN + 0.4
    row_height = 0.0
    for section in steps:
        panel = Panel(section, left, top)
        if left > MARGIN and left + panel.width > PAGE_WIDTH:
            left = MARGIN
            top += row_height + GAP * 0.7
            row_height = 0.0
            panel = Panel(section, left, top)
        panels.append(panel)
        left += panel.width + GAP
        row_height = max(row_height, panel.height)
    return panels


def _draw_panel(axes: Axes, panel: Panel, view: WalkView, printable: dict[str, str]) -> None:
    step = panel.section.step
    table = panel.section.table
    title = f"{panel.section.number}. {step.title}"
    _write(axes, panel.left, panel.top + 0.08, title, size=9, weight="bold")
    _write(axes, panel.left, panel.top + 0.27, step.equation, size=8, color=CAPTION_COLOUR)
    width, height = panel.cell
    left = panel.left + panel.label_width
    top = panel.top + TITLE_HEIGHT
    right = left + width * len(table.columns)
    bottom = top + height * len(table.rows)
    blank = np.array([[cell == BLANK for cell in row] for row in table.cells])
    colours = cell_colours(step.value, blank, step.name.endswith("weights"))
    axes.imshow(
        colours, extent=(left, right, bottom, top), aspect="auto", interpolation="nearest", zorder=1
    )
    frame: dict[str, Any] = {"color": "0.75", "linewidth": 0.5, "zorder": 2}
    axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], **frame)
    if not panel.numbered:
        return
    for j, label in enumerate(table.columns):
        x = left + (j + 0.5) * width
        _write(axes, x, top - 0.1, printable[truncate_token(label)], size=7.5, ha="center")
        axes.plot([left + j * width] * 2, [top, bottom], **frame)
    for i, label in enumerate(table.rows):
        y = top + (i + 0.5) * height
        _write(axes, left - 0.06, y, printable[truncate_token(label)], size=7.5, ha="right")
        axes.plot([left, right], [top + i * height] * 2, **frame)
        for j, cell in enumerate(table.cells[i]):
            if cell != BLANK:
                x = left + (j + 1) * width - 0.07
                _write(axes, x, y, cell, size=7.5, ha="right", zorder=3)


def cell_colours(value: Matrix, blank: Array, are_weights: bool) -> Array:
    """RGBA of each cell: blue above 0, orange below, by the square root of the size.

    A weight is compared with 1, other numbers with the largest of the matrix; a hidden score is
    grey and a blank cell white.
    """
    finite = np.where(np.isfinite(value), value, 0.0)
    largest = 1.0 if are_weights else float(np.abs(finite).max(initial=0.0)) or 1.0
    opacity = MAX_OPACITY * np.sqrt(np.minimum(1.0, np.abs(finite) / largest))
    colours = np.empty((*value.shape, 4))
    colours[..., :3] = np.where((finite < 0)[..., None], NEGATIVE, POSITIVE)
    colours[..., 3] = opacity
    colours[~np.isfinite(value)] = (*(float(HIDDEN_COLOUR),) * 3, 1.0)
    colours[blank] = (1.0, 1.0, 1.0, 1.0)
    return colours


def _texts(view: WalkView, panels: list[Panel]) -> list[str]:
    """Everything on the picture that comes from the user, each once."""
    texts = [view.walk.title]
    for panel in panels:
        table = panel.section.table
        texts += [truncate_token(label) for label in (*table.rows, *table.columns)]
    return list(dict.fromkeys(texts))


def _notes(panels: list[Panel]) -> list[str]:
    """What the marks after numbers mean, if there are any."""
    cells = "".join(cell for panel in panels for row in panel.section.table.cells for cell in row)
    return [note for mark, note in MARK_NOTES.items() if mark in cells]


def _write(axes: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """A line of text, centred on y; a $ is a dollar."""
    label = axes.text(x, y, text, va="center", **style)
    label.set_parse_math(False)
