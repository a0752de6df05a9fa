"""Word alignment: which source words each target word attended to when it was generated.

The decoder reads the finished target once, and the weights are the mean over heads of one layer's
cross attention, chosen in `alignment_choice.py` (Garg et al. 2019, "Jointly Learning to Align and
Translate with Transformer Models", always use the second-to-last layer). A row of weights is the
attention at the step that chose its token.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qkv.attention import AttentionSteps
from qkv.bundle import AlignmentHeads
from qkv.engine.batching import inference
from qkv.engine.beam.hypotheses import Hypothesis
from qkv.engine.translate.segments import SegmentedText, TranslationTemplate, join_segments
from qkv.errors import UsageError
from qkv.model import Translator
from qkv.text import Tokenizer

LINK_THRESHOLD = 0.5  # of the largest weight: other words with that much are linked too

Span = tuple[int, int]  # the first character, and the one after the last

# Over the character classes of `_character_class`. An apostrophe or a hyphen joins letters, a point
# or a comma digits; combining marks belong to the character before them; any other visible
# character, an ideograph or a kana among them, is a word of its own.
_WORD = re.compile("LM*(?:J?LM*)*|DM*(?:P?DM*)*|[^S]M*")


@dataclass(frozen=True)
class Word:
    """A word and its position: text[start:end]."""

    text: str
    start: int
    end: int

    def shifted(self, offset: int) -> "Word":
        return Word(self.text, self.start + offset, self.end + offset)


@dataclass(frozen=True)
class Link:
    """A target word and a source word it attended to.

    The weight is a fraction of the word's attention, so its links need not add up to 1: the rest
    went to other words and to special tokens.
    """

    source: Word
    target: Word
    weight: float

    def shifted(self, source: int, target: int) -> "Link":
        """The same link in texts that begin so many characters earlier."""
        return Link(self.source.shifted(source), self.target.shifted(target), self.weight)

    def json(self) -> dict[str, object]:
        return {
            "source": self.source.text,
            "target": self.target.text,
            "weight": round(self.weight, 4),
            "source_span": [self.source.start, self.source.end],
            "target_span": [self.target.start, self.target.end],
        }


class Aligner:
    """Links the words of finished translations to those of their sources, by these heads."""

    def __init__(
        self,
        model: Translator,
        tokenizer: Tokenizer,
        template: TranslationTemplate,
        heads: AlignmentHeads,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.template = template
        self.heads = heads

    def links(self, text: SegmentedText, hypotheses: Sequence[Hypothesis]) -> tuple[Link, ...]:
        """The links of a text, segment by segment, with their positions in the whole text."""
        targets = [self.tokenizer.decode(hypothesis.ids) for hypothesis in hypotheses]
        _, target_starts = join_segments(text.segments, targets)
        links: list[Link] = []
        for segment, ids, hypothesis, target, target_start in zip(
            text.segments, text.ids, hypotheses, targets, target_starts, strict=True
        ):
            weights = cross_attention(self.model, self.template, ids, hypothesis.ids, self.heads)
            source_spans = self.tokenizer.offsets(segment.text)
            target_spans = decoded_spans(self.tokenizer, hypothesis.ids, target)
            for link in word_links(segment.text, source_spans, target, target_spans, weights):
                links.append(link.shifted(segment.start, target_start))
        return tuple(links)


def heads_of_layer(model: Translator, layer: int) -> AlignmentHeads:
    """All heads of one layer, counted from 0, or from the end if negative; nothing is measured."""
    layers = model.config.decoder.layers
    if not -layers <= layer < layers:
        raise UsageError(f"layer={layer} does not exist; the decoder has 0 to {layers - 1}")
    heads = tuple(range(model.config.decoder.attention.heads))
    return AlignmentHeads(layer=layer % layers, heads=heads, agreement=0.0, tokens=0)


def cross_attention(
    model: Translator,
    template: TranslationTemplate,
    source: Sequence[int],
    target: Sequence[int],
    heads: AlignmentHeads,
) -> Tensor:
    """The weight of each source token for each target token, special tokens left out: (T, S)."""
    weights = cross_attentions(model, template, source, target)
    return weights[heads.layer, list(heads.heads)].mean(dim=0)


def cross_attentions(
    model: Translator,
    template: TranslationTemplate,
    source: Sequence[int],
    target: Sequence[int],
) -> Tensor:
    """The weights of every layer and head, special tokens left out: (L, H, T, S)."""
    captured: list[Tensor] = []

    def capture(module: object, inputs: object, steps: AttentionSteps) -> None:
        captured.append(steps.weights[0].float())

    first_row = len(template.target_prefix) - 1
    first_column = len(template.source_prefix)
    rows = slice(first_row, first_row + len(target))
    columns = slice(first_column, first_column + len(source))
    # Layers may share a block, whose hook then fires once for each of them.
    hooks = []
    for block in dict.fromkeys(model.decoder.blocks()):
        hook_point = block.get_submodule("cross.core.hook_point")
        hooks.append(hook_point.register_forward_hook(capture))
    try:
        with inference(model):
            device = model.embedding.weight.device
            source_ids = torch.tensor([template.wrap_source(source)], device=device)
            # The last token of the target chooses nothing.
            decoder_input = [*template.target_prefix, *target][: max(1, rows.stop)]
            target_ids = torch.tensor([decoder_input], device=device)
            model.states(target_ids, model.encode(source_ids))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(captured)[:, :, rows, columns].cpu()


def word_links(
    source: str,
    source_spans: Sequence[Span],
    target: str,
    target_spans: Sequence[Span],
    weights: Tensor,
) -> list[Link]:
    """For each target word the source word it attended to most, and any other nearly as much.

    weights (T, S): of the tokens. A source word gets the sum of its tokens' weights; a target word
    attends as its tokens do on average.
    """
    sources = split_words(source)
    targets = split_words(target)
    columns = tokens_by_word(sources, source_spans)
    rows = weights.tolist()
    links = list[Link]()
    for word, tokens in zip(targets, tokens_by_word(targets, target_spans), strict=True):
        total = sum(fraction for _, fraction in tokens)
        if not total or not sources:
            continue
        attention = []
        for column in columns:
            weight = sum(
                source_fraction * fraction * rows[t][s]
                for t, fraction in tokens
                for s, source_fraction in column
            )
            attention.append(weight / total)
        threshold = LINK_THRESHOLD * max(attention)
        for i, weight in sorted(enumerate(attention), key=lambda pair: -pair[1]):
            if weight and weight >= threshold:
                links.append(Link(sources[i], word, weight))
    return links


def split_words(text: str) -> list[Word]:
    """The words of a text, in order; nothing but space stands between them."""
    classes = "".join(map(_character_class, text))
    words = []
    for match in _WORD.finditer(classes):
        start, end = match.span()
        words.append(Word(text[start:end], start, end))
    return words


def tokens_by_word(words: Sequence[Word], spans: Sequence[Span]) -> list[list[tuple[int, float]]]:
    """For each word the indices of the tokens that cover some of it, and the fraction of each.

    A token counts once in all: one that covers two words is divided between them.
    """
    tokens: list[list[tuple[int, float]]] = [[] for _ in words]
    for token, (start, end) in enumerate(spans):
        covered = [i for i, word in enumerate(words) if word.start < end and start < word.end]
        for i in covered:
            tokens[i].append((token, 1 / len(covered)))
    return tokens


def decoded_spans(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[Span]:
    """The characters of a decoded text that each of its tokens contributed.

    A token that contributed only some bytes of a character covers the whole character.
    """
    spans = list[Span]()
    start = 0
    for n in range(len(ids)):
        end = max(start, _common_prefix(tokenizer.decode(ids[: n + 1]), text))
        if end > start:
            spans.append((start, end))
        else:
            spans.append((start, min(start + 1, len(text))))
        start = end
    return spans


def _common_prefix(a: str, b: str) -> int:
    """How many characters two texts have in common from the start."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def _character_class(character: str) -> str:
    """Letter, Digit, Mark, Space, Joint of letters, Point, Ideograph or Other."""
    category = unicodedata.category(character)
    if character.isspace():
        return "S"
    if category[0] == "M" or character in "\u200c\u200d":
        return "M"
    is_wide = unicodedata.east_asian_width(character) == "W"
    if category == "Lo" and is_wide and not _is_hangul(character):
        return "I"
    if category[0] == "L":
        return "L"
    if category[0] == "N":
        return "D"
    if character in ".,":
        return "P"
    if character in "'’-‐":
        return "J"
    return "O"


def _is_hangul(character: str) -> bool:
    return unicodedata.name(character, "").startswith("HANGUL")
