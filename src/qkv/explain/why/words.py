"""A text as a model reads it, by words: which positions each word is made of, and which are marks.

An explanation speaks of words, because people do; the model reads tokens. Where a language writes
without spaces each character is a word, and tokens that share one stay together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from qkv.engine.cluster.words import Span, tokens_of_words
from qkv.errors import DataError
from qkv.text import Tokenizer


@dataclass(frozen=True)
class Piece:
    """A word of the text, text[start:end], or a mark, which stands nowhere in it."""

    text: str
    start: int
    end: int
    at: tuple[int, ...]  # the positions of its tokens among those the model reads

    def json(self) -> dict[str, object]:
        return {"word": self.text, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class Reading:
    """The ids a model reads, and the words and marks they are."""

    text: str
    ids: tuple[int, ...]
    words: tuple[Piece, ...]
    marks: tuple[Piece, ...]

    def places(self, words: Sequence[int] | frozenset[int]) -> frozenset[int]:
        """The positions of the words of these numbers."""
        return frozenset(at for word in words for at in self.words[word].at)


def read(
    tokenizer: Tokenizer,
    text: str,
    most: int,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
    what: str = "the text",
) -> Reading:
    """The text with these marks around it, for a model that reads so many tokens."""
    inside = tokenizer.encode(text)
    ids = (*before, *inside, *after)
    if not ids:
        raise DataError(f"{what} is empty: there is nothing to explain")
    if len(ids) > most:
        raise DataError(
            f"{what} has {len(ids):,} tokens but the model reads at most {most:,}; shorten it"
        )
    words = pieces(tokenizer, text, inside, tokenizer.offsets(text), len(before))
    places = (*range(len(before)), *range(len(before) + len(inside), len(ids)))
    marks = tuple(Piece(tokenizer.token(ids[at]), -1, -1, (at,)) for at in places)
    return Reading(text, ids, words, marks)


def pieces(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span], first: int = 0
) -> tuple[Piece, ...]:
    """The words of a text whose tokens cover these characters; `first` is where they begin."""
    return _named(tokenizer, text, ids, spans, first, tokens_of_words(text, spans))


def by_tokens(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: Sequence[Span], first: int = 0
) -> tuple[Piece, ...]:
    """The same for a text that is one word: each token by itself."""
    alone = [(span, [at]) for at, span in enumerate(spans)]
    return _named(tokenizer, text, ids, spans, first, alone)


def _named(
    tokenizer: Tokenizer,
    text: str,
    ids: Sequence[int],
    spans: Sequence[Span],
    first: int,
    groups: Sequence[tuple[Span | None, list[int]]],
) -> tuple[Piece, ...]:
    found = []
    for span, tokens in groups:
        start, end = span or (spans[tokens[0]][0], max(spans[at][1] for at in tokens))
        shown = text[start:end] or "".join(tokenizer.token(ids[at]) for at in tokens)
        found.append(Piece(shown, start, end, tuple(first + at for at in tokens)))
    return tuple(found)
