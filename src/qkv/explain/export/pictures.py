"""Where heads look, as pictures: all of them side by side, or one with every token and number."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from qkv.errors import UsageError
from qkv.explain.export.beside import lay_out, name_positions, write_numbers
from qkv.explain.export.drawing import Letters, on_paper, save, scale, shade, sign
from qkv.explain.export.grids import Grids, all_grids
from qkv.explain.export.mosaic import mosaics
from qkv.explain.lemma_picture import check_picture
from qkv.explain.trace import Trace

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
    check_picture(target)
    parts = mosaics(all_grids(trace), layers, heads)
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
    check_picture(target)
    grids = _asked(all_grids(trace), layer, attention)
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


def _asked(found: list[Grids], layer: int, attention: str | None) -> Grids:
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
