"""What all pictures share: fonts, colours, hatching, and a file with its provenance inside."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qkv.errors import UsageError
from qkv.files import os_error_reason
from qkv.interpret.matrix import unique_labels
from qkv.interpret.trace.operations import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

DEFAULT_FONT = "DejaVu Sans"  # comes with matplotlib, so a picture is the same on every machine

# Only looked for if a text has characters that the default font lacks.
FALLBACK_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans SC",
    "Noto Sans JP",
    "Noto Sans KR",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "Droid Sans Fallback",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Noto Sans Ethiopic",
    "Noto Emoji",
    "Symbola",
)

MAX_TOKEN_LENGTH = 18  # characters of a token next to a row

TEXT_COLOUR = "0.15"
CAPTION_COLOUR = "0.45"
HIDDEN_COLOUR = "0.95"
WEIGHT_COLOURS = ("#ffffff", "#d6e6f4", "#7fb3d8", "#2b74b3", "#0b3167")

DPI = 150
CAPTION_SIZE = 6.5  # points

# What differs from matplotlib's own defaults.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "qkv",  # ids in an SVG are random without it
    "font.size": 8,
    "text.color": TEXT_COLOUR,
    "axes.edgecolor": "0.6",
    "axes.linewidth": 0.6,
    "axes.labelcolor": TEXT_COLOUR,
    "xtick.color": TEXT_COLOUR,
    "ytick.color": TEXT_COLOUR,
    "hatch.linewidth": 0.35,
    "hatch.color": "0.75",
}


def fonts_for(texts: Iterable[str]) -> list[str]:
    """Font families for these texts: the default alone if it has every character."""
    missing = {character for text in texts for character in text if ord(character) > 126}
    missing -= _characters(DEFAULT_FONT)
    fonts = [DEFAULT_FONT]
    if not missing:
        return fonts
    for family in FALLBACK_FONTS:
        available = missing & _characters(family)
        if available:
            fonts.append(family)
            missing -= available
    return fonts


def replace_missing_characters(text: str, fonts: Iterable[str]) -> str:
    """The text with code points, as in ‹8a69›, for characters that no font has."""
    available = frozenset[str]().union(*(_characters(family) for family in fonts))
    return "".join(c if c in available else f"‹{ord(c):x}›" for c in text)


def truncate_token(text: str) -> str:
    """The first characters of a long token."""
    if len(text) <= MAX_TOKEN_LENGTH:
        return text
    return f"{text[: MAX_TOKEN_LENGTH - 1]}…"


@cache
def _characters(family: str) -> frozenset[str]:
    """The printable characters of a font; none if it is not installed."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
    except ValueError:
        return frozenset()
    return frozenset(c for c in map(chr, get_font(path).get_charmap()) if c.isprintable())


class PictureText:
    """The caption and the tokens of each sequence of a picture, with fonts that can show them."""

    def __init__(self, caption: str, tokens: Mapping[str, Sequence[str]]) -> None:
        line = "".join(c if c.isprintable() else " " for c in caption)
        texts = [line]
        for sequence in tokens.values():
            texts += unique_labels(sequence)
        self.fonts = fonts_for(texts)
        self.caption = replace_missing_characters(line, self.fonts)
        self.tokens = {name: self.labels(sequence) for name, sequence in tokens.items()}

    def labels(self, tokens: Sequence[str]) -> tuple[str, ...]:
        """The tokens, made different from each other and in characters that the fonts have."""
        return tuple(replace_missing_characters(t, self.fonts) for t in unique_labels(tokens))


@contextmanager
def picture_style(text: PictureText) -> Iterator[None]:
    """Inside, the same numbers give the same bytes: no date, no random ids, no user settings."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE | {"font.family": text.fonts})
        yield


def draw_weights(axes: Axes, weights: Array, seen: Array) -> AxesImage:
    """Weights from 0 to 1, coloured by their square root; what is not seen is hatched.

    NaN is left blank.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    interpolation = "nearest"
    if max(weights.shape) > 1000:  # more cells than dots
        interpolation = "antialiased"
    image = axes.imshow(
        np.ma.masked_array(weights, ~seen | np.isnan(weights)),
        cmap=LinearSegmentedColormap.from_list("qkv", WEIGHT_COLOURS),
        norm=PowerNorm(0.5, 0, 1),
        interpolation=interpolation,
        aspect="auto",
    )
    _hatch(axes, ~seen & ~np.isnan(weights))
    return image


def add_colorbar(figure: Figure, image: AxesImage, axes: Any) -> None:
    """The legend of the colours."""
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, pad=0.015)
    bar.set_ticks([0, 0.05, 0.25, 0.5, 1], labels=["0", "0.05", "0.25", "0.5", "1"])
    bar.ax.tick_params(length=2, labelsize=7)
    bar.outline.set_linewidth(0.4)
    bar.set_label("weight", fontsize=7)


def add_caption(figure: Figure, text: PictureText) -> None:
    """The caption below, on as many lines as it needs."""
    # The mean character is a little wider than half its size in points; an inch has 72.
    characters = int(figure.get_figwidth() * 72 / (CAPTION_SIZE * 0.56))
    lines = "\n".join(textwrap.wrap(text.caption, characters))
    label = figure.supxlabel(lines, fontsize=CAPTION_SIZE, color=CAPTION_COLOUR)
    label.set_parse_math(False)  # a $ is a dollar


def save_picture(figure: Figure, path: Path, title: str, provenance: Mapping[str, str]) -> None:
    """Write the file, with the provenance as JSON in its metadata."""
    fields = json.dumps(provenance)
    metadata: dict[str, dict[str, Any]] = {
        ".png": {"Title": title, "Software": "qkv", "Comment": fields},
        ".svg": {"Title": title, "Creator": "qkv", "Description": fields, "Date": None},
        ".pdf": {"Title": title, "Creator": "qkv", "Subject": fields, "CreationDate": None},
    }
    try:
        figure.savefig(path, dpi=DPI, metadata=metadata[path.suffix.lower()])
    except OSError as error:
        raise UsageError(f"cannot write {path}: {os_error_reason(error)}") from error


def _hatch(axes: Axes, hidden: Array) -> None:
    """Hatching over the hidden cells: one path of rectangles, one per run of cells in a row."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    rectangles = []
    for y, row in enumerate(hidden):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(np.int8), [0]])))
        for left, right in edges.reshape(-1, 2) - 0.5:
            corners = [(left, y - 0.5), (right, y - 0.5), (right, y + 0.5), (left, y + 0.5)]
            rectangles.append(Outline([*corners, corners[0]], closed=True))
    if rectangles:
        path = Outline.make_compound_path(*rectangles)
        axes.add_patch(PathPatch(path, facecolor=HIDDEN_COLOUR, hatch="/////", linewidth=0))
