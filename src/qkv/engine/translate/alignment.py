"""Which source words each target word looked at when it was written."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.attention import AttentionSteps
from qkv.engine.batching import inference
from qkv.engine.beam.hypotheses import Hypothesis
from qkv.engine.translate.segments import SegmentedText, TranslationTemplate, join_segments
from qkv.errors import UsageError
from qkv.model import Translator
from qkv.text import Tokenizer

# FOLDED engine/translate/looks: How much each target token looked at each source token: the
#   cross attention of one layer.
#
#   The decoder reads the finished target once, and the weights are the mean over the layer's
#   heads.
#   The layer before the last aligns best as a rule (Garg et al. 2019, "Jointly Learning to
#   Align and
#   Translate with Transformer Models"). A row of weights is the look taken when its token was
#   chosen.
# FOLDED engine/translate/words: The words of a text, and which of its tokens belong to which
#   word.


def alignment_layer(model: Translator, asked: int | None = None) -> int:
    """The number of the layer that is asked for, from 0 or, if negative, from behind."""
    layers = model.config.decoder.layers
    if asked is None:
        return max(0, layers - 2)
    if not -layers <= asked < layers:
        raise UsageError(f"layer={asked} does not exist; the decoder has 0 to {layers - 1}")
    return asked % layers


def cross_attention(
    model: Translator,
    marking: TranslationTemplate,
    source: Sequence[int],
    target: Sequence[int],
    layer: int,
) -> Tensor:
    """How much each target token looked at each source token, both without marks: (T, S)."""
    seen: list[Tensor] = []

    def keep(tap: object, given: object, steps: AttentionSteps) -> None:
        seen.append(steps.weights)

    blocks = list(model.decoder.blocks())
    turns = [i for i, block in enumerate(blocks) if block is blocks[layer]]  # layers may share one
    hook = blocks[layer].get_submodule("cross.core.hook_point").register_forward_hook(keep)
    try:
        with inference(model):
            device = model.embedding.weight.device
            read = torch.tensor([marking.wrap_source(source)], device=device)
            written = torch.tensor([[*marking.target_prefix, *target]], device=device)
            model.states(written, model.encode(read))
    finally:
        hook.remove()
    weights = seen[turns.index(layer)][0].float().mean(dim=0)  # (T, S), marks included
    first = len(marking.target_prefix) - 1
    before = len(marking.source_prefix)
    return weights[first : first + len(target), before : before + len(source)].cpu()


Span = tuple[int, int]  # the first character, and the one after the last

# In the sorts of characters that `_sort` knows. An apostrophe or a hyphen joins letters, a point or
# a comma digits; marks (accents, vowel signs) belong to what they stand on; any other visible
# character, an ideograph or a kana among them, is a word of its own.
_WORD = re.compile("LM*(?:J?LM*)*|DM*(?:P?DM*)*|[^S]M*")


@dataclass(frozen=True)
class Word:
    """A word and where it stands: text[start:end]."""

    text: str
    start: int
    end: int

    def shifted(self, by: int) -> "Word":
        return Word(self.text, self.start + by, self.end + by)


def split_words(text: str) -> list[Word]:
    """The words of a text, in order; nothing but space stands between them."""
    sorts = "".join(map(_sort, text))
    spans = (found.span() for found in _WORD.finditer(sorts))
    return [Word(text[start:end], start, end) for start, end in spans]


def tokens_of_words(words: Sequence[Word], spans: Sequence[Span]) -> list[list[tuple[int, float]]]:
    """For each word the numbers of the tokens that cover some of it, and the share of each.

    A token counts once in all: one that covers two words is shared out between them.
    """
    found: list[list[tuple[int, float]]] = [[] for _ in words]
    for token, (start, end) in enumerate(spans):
        inside = [w for w, word in enumerate(words) if word.start < end and start < word.end]
        for w in inside:
            found[w].append((token, 1 / len(inside)))
    return found


def decoded_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """The characters of a decoded text that each of its tokens wrote.

    A token that wrote only some bytes of a character covers the whole of it.
    """
    spans = list[Span]()
    reached = 0
    for n in range(len(ids)):
        end = max(reached, _common(tokenizer.decode(ids[: n + 1]), text))
        spans.append((reached, end if end > reached else min(reached + 1, len(text))))
        reached = end
    return spans


def _common(a: str, b: str) -> int:
    """How many characters two texts have in common from the start."""
    differ = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))


def _sort(character: str) -> str:
    """Letter, Digit, Mark, Space, Joint of letters, Point, Ideograph or Other."""
    kind = unicodedata.category(character)
    if character.isspace():
        return "S"
    if kind[0] == "M" or character in "\u200c\u200d":
        return "M"
    if kind == "Lo" and unicodedata.east_asian_width(character) == "W" and not _hangul(character):
        return "I"
    if kind[0] in "LN":
        return "L" if kind[0] == "L" else "D"
    if character in ".,":
        return "P"
    if character in "'’-‐":
        return "J"
    return "O"


def _hangul(character: str) -> bool:
    return unicodedata.name(character, "").startswith("HANGUL")


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

    def shifted(self, source: int, target: int) -> "Link":
        """The same link in texts that begin so many characters earlier."""
        return Link(self.source.shifted(source), self.target.shifted(target), self.weight)


class Aligner:
    """Links the words of finished translations to those of their sources.

    layer: from 0, or counted from behind if negative; if not given, the one before the last.
    """

    def __init__(
        self,
        model: Translator,
        tokenizer: Tokenizer,
        marking: TranslationTemplate,
        layer: int | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.marking = marking
        self.layer = alignment_layer(model, layer)

    def links(self, plan: SegmentedText, parts: Sequence[Hypothesis]) -> tuple[Link, ...]:
        """The links of a text, portion by portion, with their places in the whole."""
        texts = [self.tokenizer.decode(part.ids) for part in parts]
        _, starts = join_segments(plan.segments, texts)
        found: list[Link] = []
        for portion, ids, part, text, start in zip(
            plan.segments, plan.ids, parts, texts, starts, strict=True
        ):
            weights = cross_attention(self.model, self.marking, ids, part.ids, self.layer)
            spans = self.tokenizer.offsets(portion.text)
            written = decoded_spans(self.tokenizer, part.ids, text)
            for link in word_links(portion.text, spans, text, written, weights):
                found.append(link.shifted(portion.start, start))
        return tuple(found)


def word_links(
    source: str, source_spans: Sequence[Span], target: str, target_spans: Sequence[Span], w: Tensor
) -> list[Link]:
    """For each target word the source word it looked at most, and any other nearly as much.

    w (T, S): the tokens' weights. A word gets the sum of its source tokens' weights, and looks as
    its target tokens do on average.
    """
    sources = split_words(source)
    targets = split_words(target)
    columns = tokens_of_words(sources, source_spans)
    rows = w.tolist()
    found = list[Link]()
    for word, tokens in zip(targets, tokens_of_words(targets, target_spans), strict=True):
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
