"""What all pictures share: shades, hatching, letters, and a file that says where it comes from."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qkv.errors import UsageError
from qkv.files import os_error_reason
from qkv.interpret.export.tables import caption, provenance
from qkv.interpret.matrix import unique_labels
from qkv.interpret.trace import Trace
from qkv.interpret.trace.operations import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# FOLDED explain/export/lettering: Letters for pictures: which fonts there are, and what is
#   written for a letter that none has.

OWN = "DejaVu Sans"  # comes with matplotlib, so a picture is the same on every machine

# Asked for only if a text needs them: fonts that often are there, for letters the first one lacks.
OTHERS = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans SC",
    "Noto Sans JP", "Noto Sans KR", "Source Han Sans SC", "WenQuanYi Zen Hei", "Hiragino Sans",
    "Droid Sans Fallback", "PingFang SC", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic",
    "Malgun Gothic", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Bengali",
    "Noto Sans Tamil", "Noto Sans Thai", "Noto Sans Ethiopic", "Noto Emoji", "Symbola",
)  # fmt: skip

LONGEST = 18  # characters of a token beside a row


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Families to write these texts with: the first one alone if it has every letter."""
    needed = {letter for text in texts for letter in text if ord(letter) > 126}
    needed -= _letters(OWN)
    chosen = [OWN]
    for family in OTHERS if needed else ():
        had = needed & _letters(family)
        if had:
            chosen.append(family)
            needed -= had
    return chosen


def written(text: str, fonts: Iterable[str]) -> str:
    """The text with the number of a letter, as in ‹8a69›, where no font has it."""
    known = frozenset[str]().union(*(_letters(family) for family in fonts))
    return "".join(letter if letter in known else f"‹{ord(letter):x}›" for letter in text)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


@cache
def _letters(family: str) -> frozenset[str]:
    """What a font has; nothing if it is not installed."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
    except ValueError:
        return frozenset()
    return frozenset(c for c in map(chr, get_font(path).get_charmap()) if c.isprintable())


INK, PALE, HIDDEN = "0.15", "0.45", "0.95"

SHADES = ("#ffffff", "#d6e6f4", "#7fb3d8", "#2b74b3", "#0b3167")

DOTS = 150  # an inch

SMALL = 6.5  # points


class Letters:
    """The letters of one picture: its tokens and its caption, with fonts that have them."""

    def __init__(self, trace: Trace) -> None:
        said = "".join(c if c.isprintable() else " " for c in caption(trace))
        named = {name: unique_labels(tokens) for name, tokens in trace.tokens.items()}
        self.fonts = fonts_for([said, *(token for row in named.values() for token in row)])
        self.caption = written(said, self.fonts)
        self.tokens = {
            name: tuple(written(token, self.fonts) for token in row) for name, row in named.items()
        }


@contextmanager
def on_paper(letters: Letters) -> Iterator[None]:
    """The same bytes for the same numbers: no date, no random ids, no settings of the user."""
    import matplotlib as mpl

    mine: dict[Any, Any] = {
        "svg.hashsalt": "qkv", "font.family": letters.fonts, "font.size": 8, "text.color": INK,
        "axes.edgecolor": "0.6", "axes.linewidth": 0.6, "axes.labelcolor": INK,
        "xtick.color": INK, "ytick.color": INK, "hatch.linewidth": 0.35, "hatch.color": "0.75",
    }  # fmt: skip
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mine)
        yield


def shade(axes: Axes, weights: Array, seen: Array) -> AxesImage:
    """Weights from 0 to 1 in shades that go by their square root; what is not seen is hatched.

    NaN is paper.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    shades = LinearSegmentedColormap.from_list("qkv", SHADES)
    shown = np.ma.masked_array(weights, ~seen | np.isnan(weights))
    many = max(weights.shape) > 1000  # more cells than dots
    image = axes.imshow(
        shown,
        cmap=shades,
        norm=PowerNorm(0.5, 0, 1),
        interpolation="antialiased" if many else "nearest",
        aspect="auto",
    )
    _hatch(axes, ~seen & ~np.isnan(weights))
    return image


def scale(figure: Figure, image: AxesImage, axes: Any) -> None:
    """What the shades mean."""
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, pad=0.015)
    bar.set_ticks([0, 0.05, 0.25, 0.5, 1], labels=["0", "0.05", "0.25", "0.5", "1"])
    bar.ax.tick_params(length=2, labelsize=7)
    bar.outline.set_linewidth(0.4)
    bar.set_label("weight", fontsize=7)


def sign(figure: Figure, letters: Letters) -> None:
    """The caption below, on as many lines as it needs."""
    room = int(figure.get_figwidth() * 72 / (SMALL * 0.56))
    lines = "\n".join(textwrap.wrap(letters.caption, room))
    figure.supxlabel(lines, fontsize=SMALL, color=PALE).set_parse_math(False)


def save(figure: Figure, path: Path, trace: Trace, title: str, **more: object) -> None:
    """Write the file, with the provenance in it as JSON where its format keeps remarks."""
    told = json.dumps(provenance(trace, **more))
    kinds: dict[str, dict[str, Any]] = {
        ".png": {"Title": title, "Software": "qkv", "Comment": told},
        ".svg": {"Title": title, "Creator": "qkv", "Description": told, "Date": None},
        ".pdf": {"Title": title, "Creator": "qkv", "Subject": told, "CreationDate": None},
    }
    try:
        figure.savefig(path, dpi=DOTS, metadata=kinds[path.suffix.lower()])
    except OSError as error:
        raise UsageError(f"cannot write {path}: {os_error_reason(error)}") from error


def _hatch(axes: Axes, hidden: Array) -> None:
    """Lines over cells, run by run of each row, in one path."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    runs = []
    for y, row in enumerate(hidden):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]])))
        for left, right in edges.reshape(-1, 2) - 0.5:
            corners = [(left, y - 0.5), (right, y - 0.5), (right, y + 0.5), (left, y + 0.5)]
            runs.append(Outline([*corners, corners[0]], closed=True))
    if runs:
        path = Outline.make_compound_path(*runs)
        axes.add_patch(PathPatch(path, facecolor=HIDDEN, hatch="/////", linewidth=0))
