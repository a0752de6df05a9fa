"""Where the heads of a model look, as pictures that follow the page's colours."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from qkv.interpret.attribution.attribution_text import visible_word
from qkv.interpret.attribution.translation import TargetWord, TranslationAttribution
from qkv.interpret.export.drawing import shortened
from qkv.interpret.export.pictures import AttentionWeights, all_attention_weights
from qkv.interpret.trace import Trace
from qkv.report.html import escaped, scrolling
from qkv.tour.results import Rendering

# FOLDED tour/page/alignment: Which source word each word of a translation looked at, as a
#   matrix with its numbers.

CELL, GAP, LETTER = 11, 26, 6.0  # in the picture's own units; a letter's width

LARGE = 1.25  # pixels a unit

SHOWN = 0.005  # weights below that are paper


def heat_maps(trace: Trace, name: str) -> str:
    """One picture for each kind of attention: layers down, heads across, a token a row."""
    kinds = groupby(sorted(all_attention_weights(trace), key=_order), key=lambda grids: grids.kind)
    pictures = [
        _Picture(trace, list(of_kind), f"{name}-{i}") for i, (_, of_kind) in enumerate(kinds)
    ]
    return "\n".join(picture.figure() for picture in pictures)


def _order(grids: AttentionWeights) -> tuple[bool, bool, int]:
    """The encoder first, cross attention last."""
    return "cross" in grids.kind, "decoder" in grids.kind, grids.layer


class _Picture:
    """All heads of one kind of attention."""

    def __init__(self, trace: Trace, layers: Sequence[AttentionWeights], name: str) -> None:
        self.layers, self.name, first = layers, name, layers[0]
        queries = trace.tokens[first.queries]
        self.rows = [shortened(visible_word(queries[at])) for at in first.rows]
        self.columns = [shortened(visible_word(token)) for token in trace.tokens[first.keys]]
        self.left = LETTER * max(map(len, self.rows)) + 8
        self.below = LETTER * max(map(len, self.columns)) + 10

    def figure(self) -> str:
        heads, (T, S) = len(self.layers[0].weights), self.layers[0].seen.shape
        width = self.left + heads * (S * CELL + GAP)
        height = len(self.layers) * (T * CELL + GAP) + self.below
        panels = "\n".join(
            part
            for row, grids in enumerate(self.layers)
            for head in range(heads)
            for part in self._panel(grids, row, head, last=row == len(self.layers) - 1)
        )
        return (
            '<figure>\n<div class="scroll" role="region" tabindex="0" '
            f'aria-labelledby="{self.name}">\n<svg class="heat" viewBox="0 0 {width:.0f} '
            f'{height:.0f}" width="{LARGE * width:.0f}" style="max-width:max(100%,{width:.0f}px)" '
            f'role="img" aria-labelledby="{self.name}">\n'
            f'<defs><pattern id="{self.name}-hidden" width="5" height="5" '
            'patternUnits="userSpaceOnUse"><path d="M0 5L5 0"/></pattern></defs>\n'
            f"{panels}\n</svg>\n</div>\n"
            f'<figcaption id="{self.name}">{escaped(self._words())}</figcaption>\n</figure>'
        )

    def _words(self) -> str:
        hidden = " Hatched: not to be seen." if not self.layers[0].seen.all() else ""
        kind = self.layers[0].kind
        return (
            f"{kind[0].upper()}{kind[1:]}, a square for each head: queries run down, keys across, "
            f"and the stronger a cell's colour, the more of its attention a query gives it.{hidden}"
        )

    def _panel(self, grids: AttentionWeights, row: int, head: int, last: bool) -> Iterator[str]:
        T, S = grids.seen.shape
        x, y = self.left + head * (S * CELL + GAP), row * (T * CELL + GAP) + GAP - 6
        yield f'<g transform="translate({x:.1f} {y:.1f})">'
        yield f'<text class="head" y="-6">layer {grids.layer}, head {head}</text>'
        yield from self._cells(grids, head)
        yield f'<rect width="{S * CELL}" height="{T * CELL}"/>'
        if head == 0:
            for i, token in enumerate(self.rows):
                y = (i + 0.75) * CELL
                yield f'<text class="row" x="-4" y="{y:.1f}">{escaped(token)}</text>'
        if last:
            for j, token in enumerate(self.columns):
                place = f"translate({(j + 0.25) * CELL:.1f} {T * CELL + 5}) rotate(90)"
                yield f'<text transform="{place}">{escaped(token)}</text>'
        yield "</g>"

    def _cells(self, grids: AttentionWeights, head: int) -> Iterator[str]:
        """Shades go by the square root, so that small weights can still be seen."""
        for (i, j), weight in np.ndenumerate(grids.head(head)):
            if grids.seen[i, j] and weight >= SHOWN:
                yield f'<path d="{_square(i, j)}" fill-opacity="{np.sqrt(weight):.2f}"/>'
        hidden = "".join(_square(i, j) for i, j in np.argwhere(~grids.seen))
        if hidden:
            yield f'<path d="{hidden}" fill="url(#{self.name}-hidden)"/>'


def _square(i: int, j: int) -> str:
    return f"M{j * CELL} {i * CELL}h{CELL}v{CELL}h{-CELL}z"


def alignment(rendering: Rendering) -> str:
    """A row for each target word; the word it depends on most, by hiding, is framed."""
    reason = rendering.reason
    title = f"{rendering.pair.source} → {reason.target}"
    head = "".join(
        f'<th scope="col">{escaped(visible_word(s.word.text))}</th>' for s in reason.sources
    )
    rows = "\n".join(_row(word) for word in reason.targets)
    wrong = "" if rendering.right else f"It should be: {rendering.pair.target} "
    table = (
        f'<table class="matrix looks">\n<caption>{escaped(title)}</caption>\n'
        f'<thead><tr><th scope="col">word ↓ looks at →</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )
    return f'{scrolling(title, table)}\n<p class="note">{escaped(wrong + _trust(reason))}</p>'


def _row(word: TargetWord) -> str:
    cells = "".join(
        f'<td{" class=depends" if at == word.depends_on else ""} style="--share:{share:.3f}">'
        f"{_figure(share)}{'*' if at == word.depends_on else ''}</td>"
        for at, share in enumerate(word.attention)
    )
    return f'<tr><th scope="row">{escaped(visible_word(word.word.text))}</th>{cells}</tr>'


def _figure(share: float) -> str:
    return f"{share:.2f}".lstrip("0") if share >= 0.005 else ""


def _trust(reason: TranslationAttribution) -> str:
    said = f"Attention of layer {reason.layer}: {reason.faithfulness['attention'].trust.verdict}."
    if reason.agreement is None:
        return said
    return f"{said} It and hiding words (*) name the same word for {reason.agreement:.0%}."
