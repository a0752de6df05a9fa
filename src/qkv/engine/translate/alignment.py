"""Which source words each target word looked at when it was written."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from qkv.engine.hypothesis import Hypothesis
from qkv.engine.translate.looks import aligning_layer, cross_weights
from qkv.engine.translate.marking import Marking
from qkv.engine.translate.plan import Plan
from qkv.engine.translate.portions import joined
from qkv.engine.translate.words import Span, Word, shares, words_of, written_spans
from qkv.model import Translator
from qkv.text import Tokenizer

NEAR = 0.5  # of the largest weight: other words with that much are linked too


@dataclass(frozen=True)
class Link:
    """A target word and a source word it looked at.

    The weight is the share of its attention, so the links of a word need not add up to 1: the rest
    went to other words and to marks.
    """

    source: Word
    target: Word
    weight: float

    def moved(self, source: int, target: int) -> "Link":
        """The same link in texts that begin so many characters earlier."""
        return Link(self.source.moved(source), self.target.moved(target), self.weight)


class Aligner:
    """Links the words of finished translations to those of their sources.

    layer: from 0, or counted from behind if negative; if not given, the one before the last.
    """

    def __init__(
        self, model: Translator, tokenizer: Tokenizer, marking: Marking, layer: int | None = None
    ) -> None:
        self.model, self.tokenizer, self.marking = model, tokenizer, marking
        self.layer = aligning_layer(model, layer)

    def links(self, plan: Plan, parts: Sequence[Hypothesis]) -> tuple[Link, ...]:
        """The links of a text, portion by portion, with their places in the whole."""
        texts = [self.tokenizer.decode(part.ids) for part in parts]
        _, starts = joined(plan.portions, texts)
        found: list[Link] = []
        for portion, ids, part, text, start in zip(
            plan.portions, plan.ids, parts, texts, starts, strict=True
        ):
            weights = cross_weights(self.model, self.marking, ids, part.ids, self.layer)
            spans = self.tokenizer.offsets(portion.text)
            written = written_spans(self.tokenizer, part.ids, text)
            for link in word_links(portion.text, spans, text, written, weights):
                found.append(link.moved(portion.start, start))
        return tuple(found)


def word_links(
    source: str, source_spans: Sequence[Span], target: str, target_spans: Sequence[Span], w: Tensor
) -> list[Link]:
    """For each target word the source word it looked at most, and any other nearly as much.

    w (T, S): the tokens' weights. A word gets the sum of its source tokens' weights, and looks as
    its target tokens do on average.
    """
    sources, targets = words_of(source), words_of(target)
    columns = shares(sources, source_spans)
    rows, found = w.tolist(), list[Link]()
    for word, tokens in zip(targets, shares(targets, target_spans), strict=True):
        whole = sum(share for _, share in tokens)
        if not whole or not sources:
            continue
        looks = [
            sum(s * share * rows[t][c] for t, share in tokens for c, s in column) / whole
            for column in columns
        ]
        most = max(looks)
        found += [
            Link(sources[i], word, look)
            for i, look in sorted(enumerate(looks), key=lambda pair: -pair[1])
            if look and look >= NEAR * most
        ]
    return found
