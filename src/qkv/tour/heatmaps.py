"""Attention as pictures for the tour's page: heat maps of every head, alignments as tables."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from qkv.interpret.attribution import TargetWord, TranslationAttribution, visible_word
from qkv.interpret.export import AttentionWeights, all_attention_weights, truncate_token
from qkv.interpret.trace import Trace
from qkv.report import escape, scrolling
from qkv.tour.results import ExplainedTranslation

# Sizes in the SVG's own units.
CELL = 11
GAP = 26  # between two heads
LETTER_WIDTH = 6.0

PIXELS_PER_UNIT = 1.25

MIN_WEIGHT = 0.005  # smaller weights are not drawn


def heat_maps(trace: Trace, name: str) -> str:
    """One figure for each kind of attention: layers down, heads across, a token a row."""
    attentions = sorted(all_attention_weights(trace), key=_figure_order)
    figures = []
    for i, (_, layers) in enumerate(groupby(attentions, key=lambda weights: weights.kind)):
        figures.append(_HeatMap(trace, list(layers), f"{name}-{i}").figure())
    return "\n".join(figures)


def _figure_order(weights: AttentionWeights) -> tuple[bool, bool, int]:
    """The encoder first, cross attention last."""
    return "cross" in weights.kind, "decoder" in weights.kind, weights.layer


class _HeatMap:
    """All heads of one kind of attention."""

    def __init__(self, trace: Trace, layers: Sequence[AttentionWeights], name: str) -> None:
        self.layers = layers
        self.name = name
        first = layers[0]
        queries = [truncate_token(visible_word(token)) for token in first.query_tokens]
        self.rows = [queries[index] for index in first.rows]
        self.columns = [truncate_token(visible_word(token)) for token in trace.tokens[first.keys]]
        self.left = LETTER_WIDTH * max(map(len, self.rows)) + 8
        self.below = LETTER_WIDTH * max(map(len, self.columns)) + 10

    def figure(self) -> str:
        heads = len(self.layers[0].weights)
        T, S = self.layers[0].seen.shape
        width = self.left + heads * (S * CELL + GAP)
        height = len(self.layers) * (T * CELL + GAP) + self.below
        panels: list[str] = []
        for row, weights in enumerate(self.layers):
            is_last = row == len(self.layers) - 1
            for head in range(heads):
                panels += self._panel(weights, row, head, is_last)
        svg = "\n".join(panels)
        return (
            '<figure>\n<div class="scroll" role="region" tabindex="0" '
            f'aria-labelledby="{self.name}">\n<svg class="heat" viewBox="0 0 {width:.0f} '
            f'{height:.0f}" width="{PIXELS_PER_UNIT * width:.0f}" '
            f'style="max-width:max(100%,{width:.0f}px)" '
            f'role="img" aria-labelledby="{self.name}">\n'
            f'<defs><pattern id="{self.name}-hidden" width="5" height="5" '
            'patternUnits="userSpaceOnUse"><path d="M0 5L5 0"/></pattern></defs>\n'
            f"{svg}\n</svg>\n</div>\n"
            f'<figcaption id="{self.name}">{escape(self._caption())}</figcaption>\n</figure>'
        )

    def _caption(self) -> str:
        kind = self.layers[0].kind
        legend = ""
        if not self.layers[0].seen.all():
            legend = " Hatched: masked."
        queries = "the words written" if kind == "cross attention" else "queries"
        return (
            f"{kind[0].upper()}{kind[1:]}, a square for each head: {queries} run down, keys "
            "across, and the stronger a cell's colour, the more of its attention a query gives "
            f"it.{legend}"
        )

    def _panel(
        self, weights: AttentionWeights, row: int, head: int, is_last: bool
    ) -> Iterator[str]:
        T, S = weights.seen.shape
        x = self.left + head * (S * CELL + GAP)
        y = row * (T * CELL + GAP) + GAP - 6
        yield f'<g transform="translate({x:.1f} {y:.1f})">'
        yield f'<text class="head" y="-6">layer {weights.layer}, head {head}</text>'
        yield from self._cells(weights, head)
        yield f'<rect width="{S * CELL}" height="{T * CELL}"/>'
        if head == 0:
            for i, token in enumerate(self.rows):
                y = (i + 0.75) * CELL
                yield f'<text class="row" x="-4" y="{y:.1f}">{escape(token)}</text>'
        if is_last:
            for j, token in enumerate(self.columns):
                transform = f"translate({(j + 0.25) * CELL:.1f} {T * CELL + 5}) rotate(90)"
                yield f'<text transform="{transform}">{escape(token)}</text>'
        yield "</g>"

    def _cells(self, weights: AttentionWeights, head: int) -> Iterator[str]:
        """Shades follow the square root, so that small weights remain visible."""
        for (i, j), weight in np.ndenumerate(weights.head(head)):
            if weights.seen[i, j] and weight >= MIN_WEIGHT:
                yield f'<path d="{_square(i, j)}" fill-opacity="{np.sqrt(weight):.2f}"/>'
        masked = "".join(_square(i, j) for i, j in np.argwhere(~weights.seen))
        if masked:
            yield f'<path d="{masked}" fill="url(#{self.name}-hidden)"/>'


def _square(i: int, j: int) -> str:
    return f"M{j * CELL} {i * CELL}h{CELL}v{CELL}h{-CELL}z"


def alignment(explained: ExplainedTranslation) -> str:
    """A row for each target word; the source word it depends on most, by occlusion, is framed."""
    attribution = explained.attribution
    title = f"{explained.pair.source} → {attribution.target}"
    head = "".join(
        f'<th scope="col">{escape(visible_word(source.word.text))}</th>'
        for source in attribution.sources
    )
    rows = "\n".join(_row(word) for word in attribution.targets)
    correction = ""
    if not explained.correct:
        correction = f"The reference: {explained.pair.target} "
    table = (
        f'<table class="matrix looks">\n<caption>{escape(title)}</caption>\n'
        f'<thead><tr><th scope="col">word ↓ looks at →</th>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )
    note = escape(correction + _faithfulness(attribution))
    return f'{scrolling(title, table)}\n<p class="note">{note}</p>'


def _row(word: TargetWord) -> str:
    cells = []
    for index, weight in enumerate(word.attention):
        attribute = ""
        star = ""
        if index == word.depends_on:
            attribute = " class=depends"
            star = "*"
        cells.append(f'<td{attribute} style="--fraction:{weight:.3f}">{_format(weight)}{star}</td>')
    name = escape(visible_word(word.word.text))
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _format(weight: float) -> str:
    if weight < MIN_WEIGHT:
        return ""
    return f"{weight:.2f}".lstrip("0")


def _faithfulness(attribution: TranslationAttribution) -> str:
    verdict = attribution.faithfulness["attention"].trust.verdict
    sentence = f"Attention of layer {attribution.layer}: {verdict}."
    if attribution.agreement is None:
        return sentence
    return f"{sentence} It and hiding words (*) name the same word for {attribution.agreement:.0%}."
