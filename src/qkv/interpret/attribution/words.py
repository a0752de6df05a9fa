"""Texts tokenized and grouped into words, the unit every attribution is reported in.

A model reads tokens but people read words, so the tokens of one word are occluded and summed
together. In a language written without spaces each character is a word; characters that share a
token stay together. Special tokens belong to no word and are listed separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qkv.engine.beam import beam_search
from qkv.engine.cluster import Span, tokens_by_word
from qkv.engine.translate import TranslationTemplate, decoded_spans, segment_texts
from qkv.errors import DataError
from qkv.model import Translator
from qkv.text import Tokenizer


@dataclass(frozen=True)
class WordSpan:
    """A word, text[start:end], or a special token, whose start and end are -1.

    positions: of its tokens in the model's input.
    """

    text: str
    start: int
    end: int
    positions: tuple[int, ...]

    def json(self) -> dict[str, object]:
        return {"word": self.text, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class TokenizedText:
    """The input ids of a text, grouped into words and special tokens."""

    text: str
    ids: tuple[int, ...]
    words: tuple[WordSpan, ...]
    special_tokens: tuple[WordSpan, ...]

    def positions_of(self, words: Sequence[int] | frozenset[int]) -> frozenset[int]:
        """The token positions of the words with these indices."""
        return frozenset(at for word in words for at in self.words[word].positions)


def tokenize(
    tokenizer: Tokenizer,
    text: str,
    max_length: int,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    name: str = "the text",
) -> TokenizedText:
    """The text between the special tokens `before` and `after`; raises if it exceeds `max_length`.

    name: what error messages call the text.
    """
    text_ids = tokenizer.encode(text)
    ids = (*before, *text_ids, *after)
    if not ids:
        raise DataError(f"{name} is empty: there is nothing to explain")
    if len(ids) > max_length:
        raise DataError(
            f"{name} has {len(ids):,} tokens but the model reads at most {max_length:,}; shorten it"
        )
    words = word_spans(tokenizer, text, text_ids, tokenizer.offsets(text), len(before))
    prefix = range(len(before))
    suffix = range(len(before) + len(text_ids), len(ids))
    special = tuple(WordSpan(tokenizer.token(ids[at]), -1, -1, (at,)) for at in (*prefix, *suffix))
    return TokenizedText(text, ids, words, special)


def word_spans(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], offsets: Sequence[Span], first: int = 0
) -> tuple[WordSpan, ...]:
    """The words of a text from its tokens' character offsets; `first` is the first position."""
    return _spans(tokenizer, text, ids, offsets, first, tokens_by_word(text, offsets))


def token_spans(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], offsets: Sequence[Span], first: int = 0
) -> tuple[WordSpan, ...]:
    """Like `word_spans`, but with each token as a word: for texts of a single word."""
    groups = [(span, [at]) for at, span in enumerate(offsets)]
    return _spans(tokenizer, text, ids, offsets, first, groups)


def _spans(
    tokenizer: Tokenizer,
    text: str,
    ids: Sequence[int],
    offsets: Sequence[Span],
    first: int,
    groups: Sequence[tuple[Span | None, list[int]]],
) -> tuple[WordSpan, ...]:
    spans = []
    for span, tokens in groups:
        start, end = span or (offsets[tokens[0]][0], max(offsets[at][1] for at in tokens))
        # A token that covers no character of the text is shown by its own name.
        word = text[start:end] or "".join(tokenizer.token(ids[at]) for at in tokens)
        spans.append(WordSpan(word, start, end, tuple(first + at for at in tokens)))
    return tuple(spans)


@dataclass(frozen=True)
class TokenizedPair:
    """A source and its translation, both by words.

    source_ids: without special tokens. target_ids and target_words: of the translation.
    """

    source: TokenizedText
    source_ids: tuple[int, ...]
    target: str
    target_ids: tuple[int, ...]
    target_words: tuple[WordSpan, ...]


def tokenize_pair(
    model: Translator,
    tokenizer: Tokenizer,
    source: str,
    target: str | None,
    marking: TranslationTemplate,
    beams: int,
) -> TokenizedPair:
    """The source with this target, or with the model's own translation if target is None."""
    text = _single_line(source, tokenizer, marking)
    tokenized = tokenize(
        tokenizer,
        text,
        model.config.length,
        marking.source_prefix,
        marking.source_suffix,
        "the source",
    )
    if not tokenized.words:
        raise DataError("the source has no words the model knows, so there is nothing to explain")
    first = len(marking.source_prefix)
    source_ids = tokenized.ids[first : len(tokenized.ids) - len(marking.source_suffix)]
    if target is None:
        target_ids = _translate(model, tokenized.ids, marking, beams)
    else:
        target_ids = tuple(tokenizer.encode(target, target=True))
    target_text = tokenizer.decode(target_ids)
    # The decoder reads its start tokens and all target tokens but the last.
    max_length = model.config.length - len(marking.target_prefix) + 1
    if len(target_ids) > max_length:
        raise DataError(
            f"the target has {len(target_ids):,} tokens but the model reads at most "
            f"{max_length:,}; shorten it"
        )
    spans = word_spans
    if len(tokenized.words) == 1:  # a transliteration: align letters, not words
        spans = token_spans
        words = spans(tokenizer, text, source_ids, tokenizer.offsets(text), first)
        tokenized = replace(tokenized, words=words)
    offsets = decoded_spans(tokenizer, target_ids, target_text)
    target_words = spans(tokenizer, target_text, target_ids, offsets)
    if not target_words:
        raise DataError("the target has no words, so there is nothing to explain")
    return TokenizedPair(tokenized, source_ids, target_text, target_ids, target_words)


def _single_line(source: str, tokenizer: Tokenizer, marking: TranslationTemplate) -> str:
    (plan,) = segment_texts([source], tokenizer, marking, "error")
    if len(plan.segments) != 1:
        raise DataError(
            f"the source has {len(plan.segments)} lines of text but a translation is explained "
            "line by line; pass one"
        )
    return plan.segments[0].text


def _translate(
    model: Translator, source: Sequence[int], marking: TranslationTemplate, beams: int
) -> tuple[int, ...]:
    (hypotheses,) = beam_search(
        model,
        [source],
        bos=marking.target_prefix[-1],
        prefix=marking.target_prefix[:-1],
        eos=marking.eos_id,
        beams=beams,
        forbidden=marking.suppressed_ids,
    )
    return tuple(hypotheses[0].ids)
